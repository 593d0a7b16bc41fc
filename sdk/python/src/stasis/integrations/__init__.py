"""Adapters for agent frameworks. Each is imported by itself, because it needs the framework."""

# Generated from `_async/__init__.py` by `scripts/generate_models.py`; do not edit.
"""The synchronous half of the SDK, of which the other one is made."""

"""The asynchronous half of the SDK, of which the other one is made."""

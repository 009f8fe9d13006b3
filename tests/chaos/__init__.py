"""Real processes, real faults: that every call ends once, whatever is killed (``make chaos``)."""

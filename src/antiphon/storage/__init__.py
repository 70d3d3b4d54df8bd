"""Run folders on disk: written atomically, by one writer at a time, and verified when read."""

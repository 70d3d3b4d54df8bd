"""What is shown to people: ``tables``, ``comparison`` of runs, ``error_report`` and its formats, and ``plots``."""

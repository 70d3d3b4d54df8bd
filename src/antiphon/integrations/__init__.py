"""Lets other programs use runs: ``batch`` (Ray Data, Spark) and ``simuleval``. Each needs packages of its own."""

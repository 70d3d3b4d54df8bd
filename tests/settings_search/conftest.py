"""What tests of searches share."""

import sqlite3

import pytest


@pytest.fixture
def quick_commits(monkeypatch):
    """SQLite does not wait for the disk."""
    connect = sqlite3.connect

    def connect_quickly(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_quickly)

"""Databases of searches: what a dead process leaves in one, and a server of PostgreSQL."""

import getpass
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import sqlalchemy

_PROGRAMS = Path("/usr/lib/postgresql")
_UNPRIVILEGED = "nobody"
"""Who runs the server if the tests are run by root, whom PostgreSQL refuses."""


def silence(engine, trial_ids=None):
    """Makes the last heartbeats of some trials old, or of all, as if their processes had died long ago."""
    table = sqlalchemy.Table("trial_heartbeats", sqlalchemy.MetaData(), autoload_with=engine)
    change = table.update().values(heartbeat=datetime(2020, 1, 1))
    with engine.begin() as connection:
        connection.execute(change if trial_ids is None else change.where(table.c.trial_id.in_(trial_ids)))


def postgresql_programs():
    """The folder of initdb and postgres of Debian's packages, or None."""
    return max((path.parent for path in _PROGRAMS.glob("*/bin/initdb")), default=None)


@contextmanager
def postgresql_server():
    """The URL of a server that listens on a socket in a temporary folder, and ends with the block."""
    user = _UNPRIVILEGED if os.geteuid() == 0 else getpass.getuser()
    folder = Path(tempfile.mkdtemp(prefix="antiphon-postgresql-"))
    options = {"user": user} if os.geteuid() == 0 else {}
    try:
        if options:
            shutil.chown(folder, user)
        programs, data = postgresql_programs(), folder / "data"
        initialise = [programs / "initdb", "--auth=trust", "--no-sync", f"--username={user}", "--pgdata", data]
        subprocess.run(initialise, check=True, capture_output=True, cwd=folder, **options)
        control = [programs / "pg_ctl", "--wait", "--pgdata", data, "--log", folder / "log"]
        settings = f"-k {folder} -c listen_addresses= -c fsync=off"
        subprocess.run(
            [*control, "-o", settings, "start"], check=True, stdout=subprocess.DEVNULL, cwd=folder, **options
        )
        try:
            yield f"postgresql+psycopg://{user}@/postgres?host={folder}"
        finally:
            subprocess.run(
                [*control, "--mode=immediate", "stop"], check=True, stdout=subprocess.DEVNULL, cwd=folder, **options
            )
    finally:
        shutil.rmtree(folder)

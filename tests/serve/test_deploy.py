"""What is in deploy/ fits what it deploys."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

from antiphon.cli import app

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
INSTRUCTIONS = {
    "FROM", "WORKDIR", "ARG", "RUN", "ENV", "COPY", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD",
}  # fmt: skip


def instructions():
    """The instructions of the Dockerfile with their arguments."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(re.split(r"\s+", line, maxsplit=1)) for line in lines]


def parsed(arguments):
    """The arguments of ``antiphon serve``, read as the command line reads them."""
    command = typer.main.get_command(app).commands["serve"]
    return command.make_context("serve", list(arguments), resilient_parsing=False).params


def test_the_dockerfile_has_known_instructions_and_copies_what_exists():
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    copied = [
        word for name, rest in instructions() if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    ]
    assert {"src", "pyproject.toml", "constraints.txt"} <= set(copied)
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for name in copied:
        assert (DEPLOY.parent / name).exists()
        assert f"!{name}" in allowed


def test_the_image_installs_extras_that_exist_in_a_shell_that_can_read_it():
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    commands = [rest for name, rest in instructions() if name == "RUN"]
    for command in commands:
        subprocess.run(["sh", "-n", "-c", command], check=True)
    installed = [word for command in commands if command.startswith("pip install") for word in shlex.split(command)]
    assert "torch" in installed
    (wanted,) = [word.partition("[")[2].rstrip("]").split(",") for word in installed if word.startswith(".[")]
    assert set(wanted) <= set(project["optional-dependencies"])
    assert any(word.startswith("torch") for word in project["optional-dependencies"]["torch"])


def test_the_stages_of_the_image_fit_together():
    stages, user = [], None
    for name, rest in instructions():
        if name == "FROM":
            image, _, stage = rest.partition(" AS ")
            assert ":" in image, "an image without a version changes by itself"
            stages.append(stage)
        if name == "RUN" and "useradd" in rest:
            user = rest.split()[-1]
        if name == "COPY" and "--from=" in rest:
            assert rest.partition("--from=")[2].split()[0] in stages[:-1]
        if name == "USER":
            assert rest == user
    requires = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["requires-python"]
    versions = {rest.partition(":")[2].split("-")[0] for name, rest in instructions() if name == "FROM"}
    assert versions == {requires.partition("=")[2].split(",")[0]}


def test_the_container_runs_a_command_that_exists_without_privileges():
    found = dict(instructions())
    command = json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])
    assert command[:2] == ["antiphon", "serve"]
    assert parsed(command[2:])["host"] == "0.0.0.0"
    assert found["USER"] == "antiphon"
    assert "http://127.0.0.1:8000/ready" in json.loads(found["HEALTHCHECK"].partition("CMD ")[2])[-1]


def test_the_compose_file_has_a_health_check_a_token_and_no_open_port():
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values()
    assert service["healthcheck"]["test"][:3] == ["CMD", "python", "-c"]
    assert "http://127.0.0.1:8000/ready" in service["healthcheck"]["test"][3]
    assert service["environment"]["ANTIPHON_TOKEN_FILE"] == "/run/secrets/antiphon_token"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["read_only"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert parsed(service["command"])["runs"]


def test_the_unit_starts_a_command_that_exists():
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(DEPLOY / "antiphon.service")
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[0].endswith("/antiphon")
    assert parsed(words[2:])["port"] == 8000
    assert "ANTIPHON_TOKEN_FILE=%d/token" in unit["Service"]["Environment"]


@pytest.mark.parametrize("tool", ["systemd-analyze"])
def test_systemd_finds_nothing_wrong_with_the_unit_where_it_is_installed(tool):
    if shutil.which(tool):
        done = subprocess.run(
            [tool, "verify", str(DEPLOY / "antiphon.service")], capture_output=True, text=True, check=False
        )
        problems = [line for line in done.stderr.splitlines() if "antiphon.service" in line]
        assert all("not executable" in line for line in problems), done.stderr

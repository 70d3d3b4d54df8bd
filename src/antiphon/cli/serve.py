"""``antiphon serve``: serves runs until it is stopped."""

import os
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Device, Threads, load_runs
from antiphon.exceptions import InputError, RunError, how_to_install
from antiphon.terminal import print_note


def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", envvar="ANTIPHON_TOKEN", help="Token that every request must carry."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", envvar="ANTIPHON_TOKEN_FILE", help="A file with the token.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name of this service, such as a reverse proxy's; repeatable."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Origin of a web page that may send requests, such as https://example.org; repeatable.",
        ),
    ] = None,
    max_streams: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of open streams.")] = 256,
    max_inputs: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of inputs per request.")] = 256,
    max_characters: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum number of characters of a text.")
    ] = 2000,
    max_queue: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of waiting inputs.")] = 2048,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="S", help="Maximum number of seconds per request.")] = 30.0,
    log: Annotated[bool, typer.Option(help="Log every request on standard output.")] = True,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Serve runs: a page to watch them, REST, a socket.

    Runs are named by the last names of their folders. Without --host only this
    machine can connect; another address needs a token.

    Examples:
      antiphon serve runs/demo
      antiphon serve runs/demo runs/demo-spelling/noisy --port 9000
      antiphon serve runs/demo --host 0.0.0.0 --token-file token.txt
    """
    try:
        from antiphon.device import limit_onednn_cache
        from antiphon.serve.server import serve
        from antiphon.serve.settings import Access, Limits, ServiceSettings
    except ImportError as error:
        raise InputError(f"serve: {error.name} is missing, expected it installed: {how_to_install('serve')}") from None
    if not is_text(host):
        raise InputError(f"--host {host!r}: not an address, expected one such as 127.0.0.1")
    secret = read_token(token, token_file)
    access = Access(
        host=host, port=port, token=secret, hosts=tuple(allow_host or ()), origins=tuple(allow_origin or ())
    )
    limits = Limits(streams=max_streams, inputs=max_inputs, characters=max_characters, queue=max_queue, seconds=timeout)
    limit_onednn_cache()
    named = name_runs(runs)
    models = load_runs(list(named.values()), device, threads)
    serve(dict(zip(named, models, strict=True)), ServiceSettings(access=access, limits=limits, access_log=log))


def read_token(token: str | None, file: Path | None) -> str | None:
    """The token, or that of a file."""
    if token is not None and file is not None:
        raise InputError("--token and --token-file: two tokens, expected one of them")
    if file is not None:
        token = read_token_file(file)
    if token is not None and not token.strip():
        raise InputError(f"{file or '--token'}: empty, expected a token; openssl rand -hex 32 makes one")
    if token is not None and not token.isprintable():  # lone surrogates, as of bytes that are no UTF-8, are not either
        raise InputError(
            f"{file or '--token'}: not one line of UTF-8 text, expected a token; openssl rand -hex 32 makes one"
        )
    return token


def is_text(text: str) -> bool:
    """Whether all characters are whole: bytes that are no UTF-8 arrive as lone surrogates."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def read_token_file(file: Path) -> str:
    """The text of a file with a token; a note says if others can read it."""
    if file.exists() and not file.is_file():
        raise InputError(f"{file}: not a regular file, expected one with a token")
    text = file.read_bytes().decode("utf-8", "surrogateescape").strip()
    if os.name == "posix" and file.stat().st_mode & 0o004:
        print_note(f"{file}: every user of this machine can read the token; chmod 600 {file} prevents this")
    return text


def name_runs(folders: list[Path]) -> dict[str, Path]:
    """The runs by their last names, which have to differ."""
    named: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in named:
            raise RunError(f"{folder}: a second run with the name {name}, expected folders with different last names")
        named[name] = folder
    return named

"""Who may ask: token, origin and host; and what a stranger can do with a request: nothing but be refused."""

import json
import random
import socket as sockets

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from antiphon.exceptions import InputError
from antiphon.serve.guards import equal, session_of
from antiphon.serve.settings import Access
from tests.serve.processes import eventually, hear, limited_server, say

TOKEN = "long and secret, with ümlaut"
ORIGIN = "https://friend.example"
LIMITS = {"body_bytes": 5000, "streams": 2, "seconds": 2.0, "idle_seconds": 1.5, "stream_tokens": 20, "characters": 50}


@pytest.fixture(scope="module")
def guarded(runs):
    """A server with a token, another origin, and narrow limits."""
    access = {"token": TOKEN, "origins": [ORIGIN]}
    with limited_server([runs / "online", runs / "offline"], access=access, limits=LIMITS, head_seconds=1.0) as server:
        yield server
        assert not [line for line in server.errors if "Traceback" in line]


def bearer(token):
    return {"Authorization": f"Bearer {token}".encode()}


@pytest.fixture
def stranger(guarded):
    with httpx2.Client(base_url=f"http://{guarded.address}", timeout=30) as client:
        yield client


@pytest.fixture
def friend(guarded):
    with httpx2.Client(base_url=f"http://{guarded.address}", timeout=30, headers=bearer(TOKEN)) as client:
        yield client


def test_every_address_asks_for_the_token(guarded, stranger, friend):
    described = friend.get("/openapi.json").json()["paths"]
    routes = [(method, path) for path, methods in described.items() for method in methods]
    routes += [("get", path) for path in ("/", "/openapi.json", "/index.html", "/nothing")]
    assert len(routes) >= 15
    routes = [route for route in routes if route[1] not in ("/health", "/ready")]
    assert [stranger.get(path).status_code for path in ("/health", "/ready")] == [200, 200]
    for method, path in routes:
        for headers in ({}, bearer("wrong"), bearer(TOKEN + "x"), {"Authorization": TOKEN.encode()}):
            response = stranger.request(method.upper(), path, headers=headers)
            assert response.status_code == 401, (method, path)
            assert list(response.json()) == ["error"]
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        with pytest.raises(InvalidStatus) as refused, guarded.socket(additional_headers=headers):
            pass
        assert refused.value.response.status_code == 401


def test_secrets_are_compared_as_a_whole():
    assert equal("ü" * 3, "ü" * 3)
    assert not equal("secret", "secret ")
    assert not equal("", session_of("secret"))
    assert session_of("secret") != session_of("secrets")


def test_a_browser_logs_in_with_a_form_and_gets_a_cookie_that_scripts_cannot_read(guarded, stranger):
    page = stranger.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert 'action="login"' in page.text
    assert stranger.post("/login", data={"token": "wrong"}).status_code == 401
    assert stranger.get("/login").status_code == 405
    entered = stranger.post("/login", data={"token": TOKEN})
    assert entered.status_code == 303
    flags = entered.headers["set-cookie"]
    assert "HttpOnly" in flags
    assert "samesite=strict" in flags.lower()
    assert TOKEN not in flags
    assert stranger.get("/api/runs").status_code == 200
    cookie = flags.partition(";")[0]
    with guarded.socket(additional_headers={"Cookie": cookie}, origin=f"http://{guarded.address}") as socket:
        say(socket, event="start", run="online")
        assert hear(socket, "started")


def test_the_login_form_refuses_many_fields_and_many_attempts(stranger):
    many = "&".join(f"field{n}=x" for n in range(20))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert stranger.post("/login", content=many, headers=form).status_code == 400
    statuses = [stranger.post("/login", data={"token": "wrong"}).status_code for _ in range(40)]
    assert set(statuses) == {401, 429}
    assert eventually(lambda: stranger.post("/login", data={"token": TOKEN}).status_code == 303)


@pytest.mark.parametrize(
    "origin",
    [
        "*", "null", "https://example.org/", "example.org", "https://a b", "https://A.org", "https://a.org:443",
        "http://a.org:80", "http://a.org:65536", "http://a.org:0", "http://[::1:8]:1:", "http://[:::]",
    ],
)  # fmt: skip
def test_origins_that_no_browser_sends_are_refused(origin):
    with pytest.raises(InputError, match="--allow-origin"):
        Access(origins=(origin,))
    assert Access(origins=("https://example.org", "http://[::1]:8080", "http://a.org:443")).origins


def test_where_one_run_is_served_requests_need_not_name_it(runs):
    with limited_server([runs / "online"]) as server:
        assert server.ask("predict", inputs=["da"])["run"] == "online"
        with server.socket() as socket:
            say(socket, event="start")
            assert hear(socket, "started")[-1]["run"] == "online"


def test_pages_of_other_origins_are_refused_unless_they_are_named(guarded, friend):
    body = {"run": "online", "inputs": ["da"]}
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "", "http://["):
        assert friend.post("/api/predict", json=body, headers={"Origin": origin}).status_code == 403
        assert "access-control-allow-origin" not in friend.get("/api/runs", headers={"Origin": origin}).headers
    named = friend.post("/api/predict", json=body, headers={"Origin": ORIGIN})
    assert (named.status_code, named.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert friend.post("/api/predict", json=body, headers={"Origin": f"http://{guarded.address}"}).status_code == 200
    headers = {"Cookie": f"antiphon_session={session_of(TOKEN)}"}
    with (
        pytest.raises(InvalidStatus) as refused,
        guarded.socket(additional_headers=headers, origin="https://evil.example"),
    ):
        pass
    assert refused.value.response.status_code == 403
    with guarded.socket(additional_headers=headers, origin=ORIGIN) as socket:
        assert socket.latency is not None


def test_without_a_token_only_names_of_this_machine_are_served_and_no_other_origin(server):
    for host, status in (
        ("127.0.0.1", 200),
        ("localhost:8000", 200),
        ("[::1]", 200),
        ("evil.example", 403),
        ("[", 403),
    ):
        assert server.http.get("/api/runs", headers={"Host": host}).status_code == status, host
    answer = server.http.get("/api/runs", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_answer_forbids_the_browser_to_load_anything_from_outside(server, stranger):
    for response in (server.http.get("/"), server.http.get("/api/runs"), stranger.get("/"), server.post("predict")):
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"


def test_html_in_inputs_comes_back_as_json_and_never_as_html(server):
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    answer = server.post("predict", run="online", inputs=[attack])
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["predictions"][0]["source"] == attack
    for path in (f"/{attack}", f"/openapi.json?{attack}", f"/api/{attack}"):
        assert "<script>alert" not in server.http.get(path).text


def test_no_path_of_a_request_reaches_the_disk(server, runs):
    secret = runs / "online" / "recipe.toml"
    for path in (
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/pages.py",
        "/..%5c..%5cx",
        str(secret),
    ):
        assert server.http.get(path).status_code == 404
    for name in ("../online", str(runs / "online"), "online/../offline", "/etc"):
        assert server.post("predict", run=name, inputs=["da"]).status_code == 404


def test_an_open_address_without_a_token_is_refused():
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org"):
        with pytest.raises(InputError, match="--token"):
            Access(host=host)
    assert Access(host="0.0.0.0", token="x").known_hosts is None
    assert "::1" in Access(host="::1").known_hosts


def test_bodies_that_are_too_large_or_too_slow_are_refused(guarded, friend):
    large = b" " * 6000
    json_type = {"Content-Type": "application/json"}
    assert friend.post("/api/predict", content=large, headers=json_type).status_code == 413
    parts = (b" " * 1000 for _ in range(8))
    assert friend.post("/api/predict", content=parts, headers=json_type).status_code == 413
    with raw(guarded) as slow:
        token = f"Authorization: Bearer {TOKEN}\r\n".encode()
        slow.sendall(b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + token)
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def raw(server):
    connection = sockets.create_connection(("127.0.0.1", server.port))
    connection.settimeout(30)
    return connection


def test_connections_that_never_finish_a_request_are_closed(guarded):
    for start in (b"", b"GET /health HTTP/1.1\r\nHost: 127"):
        with raw(guarded) as slow:
            slow.sendall(start)
            assert slow.recv(1000) == b""


def test_streams_beyond_the_limit_and_silent_or_too_long_ones_are_closed(guarded):
    headers = {"Cookie": f"antiphon_session={session_of(TOKEN)}"}

    def closed(socket):
        """The code with which the server closes the connection."""
        try:
            while True:
                socket.recv(timeout=30)
        except ConnectionClosed as closing:
            return closing.rcvd.code

    with guarded.socket(additional_headers=headers) as one, guarded.socket(additional_headers=headers):
        with guarded.socket(additional_headers=headers) as third:
            assert closed(third) == 1013
        say(one, event="start", run="online")
        say(one, event="read", text="d" * 40)
        assert closed(one) == 4413
    assert eventually(lambda: guarded.metric("antiphon_open_streams") == 0)
    with guarded.socket(additional_headers=headers) as silent:
        assert closed(silent) == 4408
    with guarded.socket(additional_headers=headers) as loud:
        loud.send("x" * 6000)
        assert closed(loud) == 1009


def test_malformed_frames_close_only_their_own_connection(server):
    for frame in (
        b"\xff\xff\xff\xff",
        b"\x81\x05hello",
        b"\xc1\x80\x00\x00\x00\x00",
        b"\x81\xfe\x00\x7e\x00\x00\x00\x00\xff",
    ):
        with raw(server) as connection:
            connection.sendall(
                b"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            assert connection.recv(1000).startswith(b"HTTP/1.1 101")
            connection.sendall(frame)
            connection.shutdown(sockets.SHUT_WR)
            while connection.recv(1000):
                pass
    assert server.http.get("/health").status_code == 200
    assert eventually(lambda: server.metric("antiphon_open_streams") == 0)


def anything(draw, depth=0):
    """A random JSON value, often almost right."""
    simple = [
        None, True, 0, -1, 10**30, 1e308, "", "dagi", "<b>", "\x00", "é" * 30, "../x", "online", "offline", "a\tb\nc",
    ]  # fmt: skip
    kind = draw.random()
    if depth > 2 or kind < 0.6:
        return draw.choice(simple)
    if kind < 0.8:
        return [anything(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    return {draw.choice(["run", "text", "features", "source", "x"]): anything(draw, depth + 1) for _ in range(2)}


KEYS = {
    "predict": ["inputs", "nbest", "beam", "cover", "align", "prefix", "allow_unknown_features"],
    "score": ["pairs"],
    "align": ["pairs"],
    "rank": ["question", "sentences", "explain"],
    "tokens": ["texts", "features", "top"],
    "lattice": ["input", "features", "ended", "prefix", "target", "nbest", "emit_bias", "top"],
    "cell": ["input", "target", "row", "column", "ended", "emit_bias"],
}
RIGHT = {
    "inputs": ["da", ""], "pairs": [{"source": "da", "target": "daan"}], "question": "which ?", "sentences": ["a b"],
    "texts": ["da"], "input": "da", "target": ["d"], "row": 0, "column": 1,
}  # fmt: skip


@pytest.mark.parametrize("requests", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_requests_end_without_failure(server, requests):
    draw = random.Random(1)
    statuses = []
    for _ in range(requests):
        name = draw.choice([*KEYS, "runs", draw.choice(["", "%00", "../..", "é", "predict/x"])])
        names = ["online", "offline", "lm", "answers", "noisy", "features", "x"]
        body = {key: RIGHT.get(key) for key in KEYS.get(name, ()) if key in RIGHT} | {"run": draw.choice(names)}
        for key in KEYS.get(name, ()):
            if draw.random() < 0.25:
                body[key] = anything(draw)
        content = json.dumps(body).encode() if draw.random() < 0.9 else draw.randbytes(20)
        method = draw.choice(["POST"] * 8 + ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
        response = server.http.request(
            method, f"/api/{name}", content=content, headers={"Content-Type": "application/json"}
        )
        statuses.append(response.status_code)
        assert response.status_code < 500, (name, content, response.text)
        assert "Traceback" not in response.text
    assert {200, 400, 404, 405, 422} <= set(statuses)
    assert server.http.get("/health").status_code == 200

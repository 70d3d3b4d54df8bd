"""Every endpoint through a real HTTP client: answers are those of the Python API."""

import pytest

from tests.serve.processes import eventually
from tests.toy import inflect, words

WORDS = words(6, seed=9)


def test_runs_are_named_by_their_folders_and_say_what_they_can_do(server):
    about = server.http.get("/api/runs").json()
    runs = {run["name"]: run for run in about["runs"]}
    assert list(runs) == ["online", "offline", "features", "lm", "noisy", "answers"]
    assert runs["online"]["can"] | {"stream": True, "lattice": True, "rank": False} == runs["online"]["can"]
    assert runs["online"]["encoder"] == "unidirectional"
    assert runs["online"]["policies"] == ["greedy", "beam"]
    assert "bidirectional" in runs["offline"]["why_no_stream"]
    assert runs["offline"]["policies"] == []
    assert runs["features"]["features"] == ["PL", "SG", "V"]
    assert runs["noisy"]["weights"] == {"direct": 1.0, "channel": 0.5, "language_model": 0.5, "length": 0.1}
    assert runs["answers"]["can"]["explain"]
    assert runs["answers"]["examples"][0]["sentences"]
    assert len(runs["online"]["examples"]) == 4
    assert runs["lm"]["can"]["tokens"]
    assert len({frozenset(run) for run in runs.values()}) == 1
    assert about["limits"]["inputs"] == 256


def same(answer, prediction):
    """Whether an answer is what the Python API gives, numbers to the rounding of floats."""
    assert answer["text"] == prediction.text
    assert tuple(answer["tokens"]) == prediction.tokens
    assert [tuple(link) for link in answer["alignment"]] == prediction.alignment
    assert answer["probability"] == (prediction.probability and pytest.approx(prediction.probability, rel=1e-4))
    assert answer.keys() == prediction.to_dict().keys()
    assert answer["nbest"][0].keys() >= prediction.nbest[0].to_dict().keys()
    for found, wanted in zip(answer["nbest"], prediction.nbest, strict=True):
        assert (found["text"], tuple(found["rows"])) == (wanted.text, wanted.rows)
        assert found["token_probabilities"] == pytest.approx(list(wanted.token_probabilities), rel=1e-4)
        assert found["score"] == pytest.approx(wanted.score, rel=1e-4)
    return True


@pytest.mark.parametrize("run", ["online", "offline", "noisy"])
def test_predictions_are_those_of_predict(server, models, run):
    answer = server.ask("predict", run=run, inputs=WORDS, nbest=3)
    predictions = models[run].predict(WORDS, nbest=3)
    assert all(same(*pair) for pair in zip(answer["predictions"], predictions, strict=True))


def test_a_single_request_gives_the_very_numbers_of_predict(server, models):
    (answer,) = server.ask("predict", run="offline", inputs=WORDS[:1])["predictions"]
    assert answer["probability"] == models["offline"].predict(WORDS[:1])[0].probability


def test_the_parts_of_a_noisy_channel_add_up_to_its_score(server):
    weights = next(run for run in server.http.get("/api/runs").json()["runs"] if run["name"] == "noisy")["weights"]
    for prediction in server.ask("predict", run="noisy", inputs=WORDS, nbest=3)["predictions"]:
        assert prediction["probability"] is None
        for candidate in prediction["nbest"]:
            parts = candidate["parts"]
            assert sum(weights[name] * parts[name] for name in weights) == pytest.approx(candidate["score"], abs=1e-6)


def test_outputs_begin_with_the_prefix_that_is_asked_for(server, models):
    (answer,) = server.ask("predict", run="offline", inputs=WORDS[:1], prefix=["k", "k"], nbest=2)["predictions"]
    assert all(candidate["text"].startswith("kk") for candidate in answer["nbest"])
    (log_prob,) = models["offline"].score([(WORDS[0], answer["text"])])
    assert answer["log_probability"] == pytest.approx(log_prob, abs=1e-4)


def test_cover_blank_inputs_and_features(server, models):
    covered = server.ask("predict", run="offline", inputs=[WORDS[0], " "], nbest=20, cover=0.5)["predictions"]
    assert same(covered[0], models["offline"].predict([WORDS[0]], nbest=20, cover=0.5)[0])
    assert covered[1]["text"] is None
    assert covered[1]["reason"] == "the input is empty"
    (tagged,) = server.ask("predict", run="features", inputs=[{"text": "dagi", "features": "V;PL"}])["predictions"]
    assert same(tagged, models["features"].predict([("dagi", "V;PL")])[0])
    for wrong, said in ((["dagi"], "no features"), ([{"text": "dagi", "features": "V;DU"}], "never seen")):
        refused = server.post("predict", run="features", inputs=wrong)
        assert refused.status_code == 400
        assert said in refused.json()["error"]


def test_scores_are_those_of_score(server, models):
    pairs = [(word, inflect(word)) for word in WORDS]
    answer = server.ask("score", run="online", pairs=[{"source": one, "target": other} for one, other in pairs])
    found = [each["log_probability"] for each in answer["scores"]]
    assert found == pytest.approx(models["online"].score(pairs), rel=1e-4)
    assert answer["scores"][0]["tokens"] == len(pairs[0][1]) + 1
    (alone,) = server.ask("score", run="lm", pairs=[{"target": "daagiin"}])["scores"]
    assert alone["log_probability"] == pytest.approx(models["lm"].score([("", "daagiin")])[0], rel=1e-4)


def test_alignments_are_those_of_align(server, models):
    (answer,) = server.ask("align", run="offline", pairs=[{"source": "dagi", "target": "daagiin"}])["alignments"]
    (wanted,) = models["offline"].align([("dagi", "daagiin")])
    assert answer["rows"] == list(wanted.rows)
    assert [tuple(link) for link in answer["alignment"]] == wanted.links()
    for found, row in zip(answer["posterior"], wanted.posterior.tolist(), strict=True):
        assert found == pytest.approx(row, abs=1e-5)


def test_sentences_are_ranked_with_attention(server, models):
    given = "which colour ?", ["the house was red", "an owl", "the old blue door"]
    answer = server.ask("rank", run="answers", question=given[0], sentences=given[1], explain=True)["ranking"]
    wanted = models["answers"].rank(*given, explain=True)
    assert [each["index"] for each in answer] == [each.index for each in wanted]
    assert [each["probability"] for each in answer] == pytest.approx([each.probability for each in wanted])
    assert [word for word, _ in answer[0]["attention"]] == answer[0]["sentence"].split()
    assert sum(weight for _, weight in answer[0]["attention"]) == pytest.approx(1.0, abs=1e-4)


def test_the_tokens_of_a_language_model_multiply_to_its_probability(server):
    (answer,) = server.ask("tokens", run="lm", texts=["daagiin"], top=3)["texts"]
    scored = server.ask("score", run="lm", pairs=[{"target": "daagiin"}])["scores"][0]["log_probability"]
    assert answer["log_probability"] == pytest.approx(scored, abs=1e-4)
    assert [each["token"] for each in answer["tokens"]] == [*"daagiin", "</s>"]
    for each in answer["tokens"]:
        assert each["rank"] == 1 or each["probability"] <= each["next"][0][1] + 1e-6
        assert len(each["next"]) == 3


def test_the_lattice_of_a_whole_input_is_that_of_its_best_output(server, models):
    answer = server.ask("lattice", run="offline", input="dagi", nbest=3, top=4)
    (prediction,) = models["offline"].predict(["dagi"])
    (alignment,) = models["offline"].align([("dagi", prediction.text)])
    assert answer["text"] == prediction.text
    assert answer["rows"] == list(alignment.rows)
    assert answer["target"][-1] == answer["source"][-1] == "</s>"
    for found, row in zip(answer["posterior"], alignment.posterior.tolist(), strict=True):
        assert found == pytest.approx(row, abs=1e-4)
    assert next(each["text"] for each in answer["candidates"]) == prediction.text
    dropped = {tuple(each["tokens"]) for each in answer["dropped"]}
    assert dropped
    assert not dropped & {tuple(each["tokens"]) for each in answer["candidates"]}


def test_forcing_a_token_branches(server):
    best = server.ask("lattice", run="offline", input="dagi")
    other = "t" if best["target"][0] == "m" else "m"
    forced = server.ask("lattice", run="offline", input="dagi", prefix=[other])
    assert forced["target"][0] == other != best["target"][0]
    assert all(each["tokens"][0] == other for each in forced["candidates"])


def test_the_lattice_of_a_part_has_a_column_for_what_comes_next(server):
    answer = server.ask("lattice", run="online", input="dag", ended=False)
    columns = len(answer["target"]) + 1
    assert answer["source"] == ["d", "a", "g"]
    assert len(answer["rows"]) == columns - 1
    assert {len(row) for table in (answer["posterior"], answer["write"]) for row in table} == {columns}
    assert len(answer["next"]) == columns
    assert answer["next"][-1]["read_on"] > 0
    refused = server.post("lattice", run="offline", input="dag", ended=False)
    assert refused.status_code == 400
    assert "bidirectional" in refused.json()["error"]


def test_a_cell_says_the_same_as_the_lattice(server):
    lattice = server.ask("lattice", run="offline", input="dagi", top=4)
    target, column = lattice["target"][:-1], 1
    for row in range(len(lattice["source"])):
        cell = server.ask("cell", run="offline", input="dagi", target=target, row=row, column=column, top=4)
        assert cell["write"] == pytest.approx(lattice["write"][row][column], abs=1e-5)
        assert cell["posterior"] == pytest.approx(lattice["posterior"][row][column], abs=1e-5)
        assert cell["summed"] == lattice["next"][column]["summed"]
        assert cell["write"] + cell["read"] == pytest.approx(1.0, abs=1e-5)
    assert cell["best_row"] == lattice["rows"][column]
    outside = server.post("cell", run="offline", input="dagi", target=target, row=99, column=0)
    assert outside.status_code == 400
    assert "outside" in outside.json()["error"]


def test_all_endpoints_are_described(server):
    described = server.http.get("/openapi.json").json()["paths"]
    assert {"/api/predict", "/api/lattice", "/api/runs", "/health", "/ready", "/metrics"} <= set(described)


def test_answers_have_the_schema_that_is_described_and_the_keys_of_its_example(server):
    from antiphon.serve.schemas import EXAMPLES, schema_of

    asked = {
        "predict": {"run": "offline", "inputs": ["dagi", " "]},
        "score": {"run": "offline", "pairs": [{"source": "da", "target": "daan"}]},
        "align": {"run": "offline", "pairs": [{"source": "da", "target": "daan"}]},
        "rank": {"run": "answers", "question": "which colour ?", "sentences": ["red"]},
        "tokens": {"run": "lm", "texts": ["da"]},
        "lattice": {"run": "offline", "input": "dagi"},
        "cell": {"run": "offline", "input": "dagi", "target": ["d"], "row": 0, "column": 0},
    }
    answers = {name: server.ask(name, **body) for name, body in asked.items()}
    answers["runs"] = server.http.get("/api/runs").json()
    assert set(answers) == set(EXAMPLES)
    described = server.http.get("/openapi.json").json()["paths"]
    for name, answer in answers.items():
        (route,) = described[f"/api/{name}"].values()
        assert list(mismatches(answer, route["responses"]["200"]["content"]["application/json"]["schema"])) == []
        assert shape(answer) == shape(EXAMPLES[name]), name
    noisy = server.ask("predict", run="noisy", inputs=["dagi"])
    assert list(mismatches(noisy, schema_of([EXAMPLES["predict"]]))) == []


JSON_TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
    "null": type(None),
}  # fmt: skip


def mismatches(value, schema, where=""):
    """The places in an answer that are not as the schema says."""
    types = [schema.get("type", [])] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if types and not any(isinstance(value, JSON_TYPES[name]) for name in types):
        yield f"{where}: {value!r}, described as {types}"
    elif isinstance(value, dict):
        yield from (f"{where}.{key}: missing" for key in schema.get("required", ()) if key not in value)
        for key, each in value.items():
            yield from mismatches(each, schema.get("properties", {}).get(key, {}), f"{where}.{key}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from mismatches(each, schema.get("items", {}), f"{where}[{index}]")


def shape(value):
    """The keys of an answer, of objects in lists those of the first."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None


def test_health_readiness_and_metrics(server):
    assert server.http.get("/health").json() == {"status": "ok"}
    assert server.http.get("/ready").json() == {"status": "ready"}
    before = server.metric("antiphon_requests_total")
    server.http.get("/health")
    assert server.metric("antiphon_requests_total") >= before + 1
    assert server.http.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_latency_is_counted_by_route_and_without_files_of_the_page(server):
    server.http.get("/style.css")
    server.http.get("/health")
    lines = [line for line in server.http.get("/metrics").text.splitlines() if line.startswith("antiphon_request_sec")]
    assert any('_count{route="/health"}' in line for line in lines)
    assert not any('route="page"' in line for line in lines)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/predict", 405),
        ("DELETE", "/api/predict", 405),
        ("POST", "/api/runs", 405),
        ("POST", "/nothing", 404),
        ("POST", "/api/nothing", 404),
        ("GET", "/nothing", 404),
        ("HEAD", "/health", 200),
        ("HEAD", "/", 200),
        ("HEAD", "/api/runs", 200),
    ],
)
def test_wrong_methods_and_unknown_addresses_have_their_own_status(server, method, path, status):
    response = server.http.request(method, path)
    assert response.status_code == status
    if method == "HEAD":
        assert (response.content, response.headers["content-length"]) == (b"", str(len(server.http.get(path).content)))
    else:
        assert list(response.json()) == ["error"]


def test_answers_and_refusals_are_described_as_they_are(server):
    for path, methods in server.http.get("/openapi.json").json()["paths"].items():
        for route in methods.values():
            if not path.startswith("/api/"):
                continue
            assert "422" not in route["responses"]
            refused = route["responses"]["4XX"]["content"]["application/json"]["schema"]
            assert list(refused["properties"]) == ["error"]
            schema = route["responses"]["200"]["content"]["application/json"]["schema"]
            assert {"run", "runs"} & set(schema["properties"])


def test_an_unchanged_page_is_not_sent_again(server):
    start = server.http.get("/")
    assert start.headers["content-type"].startswith("text/html")
    again = server.http.get("/", headers={"If-None-Match": start.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("name", "body", "status", "said"),
    [
        ("predict", {"run": "nobody", "inputs": ["a"]}, 404, "nobody"),
        ("predict", {"run": "answers", "inputs": ["a"]}, 422, "cannot"),
        ("predict", {"run": "online", "inputs": []}, 422, "empty"),
        ("predict", {"run": "online", "inputs": "dagi"}, 422, "inputs"),
        ("predict", {"run": "online", "inputs": [1]}, 422, "inputs[0]"),
        ("predict", {"run": "online", "inputs": ["a"], "nbst": 3}, 422, "nbst"),
        ("predict", {"run": "online", "inputs": ["a"], "nbest": 0}, 422, "nbest"),
        ("predict", {"run": "online", "inputs": ["a"], "nbest": "2"}, 422, "nbest"),
        ("predict", {"run": "online", "inputs": ["a"], "nbest": 500}, 413, "nbest"),
        ("predict", {"run": "online", "inputs": ["a"], "cover": 2}, 422, "cover"),
        ("predict", {"run": "online", "inputs": ["a"] * 257}, 413, "257"),
        ("predict", {"run": "online", "inputs": ["a" * 2001]}, 413, "2,001"),
        ("predict", {"run": "online", "inputs": ["a"], "prefix": ["?"]}, 400, "prefix"),
        ("predict", {"run": "noisy", "inputs": ["a"], "cover": 0.5}, 400, "cover"),
        ("predict", {"inputs": ["a"]}, 422, "run"),
        ("score", {"run": "noisy", "pairs": [{"target": "a"}]}, 422, "cannot"),
        ("align", {"run": "lm", "pairs": [{"target": "a"}]}, 422, "cannot"),
        ("rank", {"run": "online", "question": "a", "sentences": ["b"]}, 422, "cannot"),
        ("lattice", {"run": "online", "input": ""}, 400, "empty"),
        ("lattice", {"run": "online", "input": "a", "emit_bias": 1e9}, 422, "emit_bias"),
        ("nothing", {}, 404, "address"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(server, name, body, status, said):
    response = server.post(name, **body)
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert said in response.json()["error"]


def test_bodies_that_are_no_json_object_are_refused(server):
    for body in (b"{", b"[1]", b"3", b"null", b"\xff", b'{"run": "online", "inputs": ["\\ud800"]}'):
        response = server.http.post("/api/predict", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code in (400, 422), body
        assert "error" in response.json()
    text = server.http.post("/api/predict", content=b"{}", headers={"Content-Type": "text/plain"})
    assert text.status_code == 415


def test_uvicorn_logs_every_request_without_what_was_asked(server):
    server.ask("predict", run="online", inputs=["dagisecret"])
    server.http.get("/missing.css")
    assert eventually(lambda: any('"GET /missing.css HTTP/1.1" 404' in line for line in list(server.output)))
    assert any('"POST /api/predict HTTP/1.1" 200' in line for line in server.output)
    assert "dagisecret" not in "".join(server.output)


def test_a_missing_key_is_named_together_with_an_unknown_one(server):
    answer = server.http.post("/api/predict", json={"run": "online", "input": ["da"]})
    assert answer.json()["error"] == "inputs: field required, and input is an unknown key"

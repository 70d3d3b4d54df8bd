"""Type, and watch runs read and write."""

import json
import re
import shlex
import subprocess
import sys
import time

import pytest

from tests.page.conftest import serving
from tests.toy import inflect

pytestmark = pytest.mark.browser


def test_tokens_appear_before_the_input_has_ended(screen):
    page = screen.open(run="online", text="d")
    screen.type("dagibu")
    screen.wait("() => document.querySelectorAll('.token:not(.is-pending)').length >= 6")
    assert "ended" not in page.url
    assert inflect("dagibu").startswith(screen.written)
    assert screen.written != inflect("dagibu")
    page.keyboard.press("Enter")
    screen.wait_for_output(inflect("dagibu"))
    screen.wait("() => document.querySelector('.facts').innerText.includes('read 6, wrote 10')")


def test_a_first_visit_starts_with_an_example_of_the_first_run(screen):
    page = screen.open()
    screen.wait("() => location.hash.includes('ended=true')")
    assert page.locator("#run").input_value() == "online"
    assert page.locator("#text").input_value() == page.locator("#examples button").first.inner_text()
    page.locator("#examples button").nth(2).click()
    screen.wait_for_output(inflect(page.locator("#text").input_value()))


def test_what_a_run_is_for_can_be_read_in_full_beside_all_that_is_chosen(screen):
    page = screen.open(run="online")
    screen.wait("() => document.querySelector('#about').textContent")
    page.locator("#compare-field").wait_for()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        shown = "({ scrollWidth, clientWidth, scrollHeight, clientHeight }) =>"
        shown += " scrollWidth <= clientWidth && scrollHeight <= clientHeight"
        assert page.locator("#about").evaluate(shown)


def test_an_example_types_itself_where_motion_is_welcome(screen):
    screen.page.emulate_media(reduced_motion="no-preference")
    screen.page.add_init_script("""
        window.typed = [];
        const { get, set } = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
        const note = function (text) {
          if (this.id === "text") window.typed.push(text);
          set.call(this, text);
        };
        Object.defineProperty(HTMLInputElement.prototype, "value", { get, set: note });
    """)
    page = screen.open(run="online")
    screen.wait("() => location.hash.includes('ended=true')")
    word = page.locator("#text").input_value()
    assert page.evaluate("window.typed") == [word[: length + 1] for length in range(len(word))]
    screen.wait_for_output(inflect(word))


def test_letters_taken_back_are_taken_back_from_the_output(screen):
    page = screen.open(run="online", text="dagibu", ended="true")
    screen.wait_for_output(inflect("dagibu"))
    page.locator("#text").press("End")
    for _ in range(3):
        page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    screen.wait_for_output(inflect("dag"))


def test_the_cell_under_the_pointer_is_described(screen):
    page = screen.open(run="online", text="dagibu", ended="true")
    screen.wait_for_lattice("dagibu", inflect("dagibu"))
    hover(page, "Row d, before d")
    write, read = (float(number.strip("<>")) for number in page.locator(".moves dd").all_inner_texts())
    assert write + read == pytest.approx(1, abs=0.02)
    hover(page, "Row a, before a")
    assert page.locator(".next-token.is-chosen .symbol").inner_text() == "a"


def test_all_that_is_said_of_a_cell_fits_on_a_small_laptop(screen):
    screen.page.set_viewport_size({"width": 1280, "height": 800})
    page = screen.open(run="online", text="dagibu", ended="true")
    screen.wait_for_lattice("dagibu", inflect("dagibu"))
    page.locator(".lattice").first.hover()
    page.locator("#cursor .next-token").first.wait_for()
    panel = page.locator(".panel", has=page.locator("#cursor"))
    assert panel.evaluate("each => each.scrollHeight <= each.clientHeight")


def hover(page, place):
    """Moves the pointer over the first lattice until a cell is found whose description has this heading."""
    box = page.locator(".lattice").first.bounding_box()
    for y in range(50, int(box["height"]), 25):
        for x in range(90, int(box["width"]), 50):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if page.locator("#cursor h2").inner_text() == place:
                return
    raise AssertionError(f"no cell is described by {place}")


def test_a_token_is_forced_and_the_output_branches(screen):
    page = screen.open(run="online", text="dagibu", ended="true")
    screen.wait_for_lattice("dagibu", inflect("dagibu"))
    hover(page, "Row a, before a")
    other = page.locator(".next-token:not(.is-chosen)").first
    token = other.locator(".symbol").inner_text()
    page.mouse.down()
    page.mouse.up()
    other.click()
    screen.wait(
        "start => document.querySelector('.written')?.innerText.replace(/\\s/g, '').startsWith(start)", f"d{token}"
    )
    screen.wait(
        "start => [...document.querySelectorAll('.output button')].every(each => each.innerText.startsWith(start))",
        f"d{token}",
    )
    assert page.locator("#forced-tokens").inner_text() == f"d {token}"
    page.locator("#unforce").click()
    screen.wait_for_output(inflect("dagibu"))
    assert page.locator("#forced").is_hidden()


def test_dropped_candidates_stay_visible(screen):
    screen.open(run="online", text="dagibu", ended="true", policy="beam")
    screen.wait("() => document.querySelector('.is-dropped .reason')?.innerText.startsWith('dropped ')")


@pytest.mark.parametrize("policy", ["greedy", "beam"])
def test_the_slider_makes_either_policy_write_sooner(screen, policy):
    page = screen.open(run="online", text="dagibu", ended="true", policy=policy)
    lagging = [""]
    for end in (None, "min", "max"):  # what is shown before the slider moves, and after
        if end:
            screen.set_slider("#delay", page.locator("#delay").get_attribute(end))
        screen.wait(
            "before => document.querySelectorAll('.lattice-table tbody tr').length === 7 "
            "&& !['', before].includes(document.querySelector('.lagging')?.innerText)",
            lagging[-1],
        )
        lagging.append(page.locator(".lagging").inner_text())
    late, soon = (float(text.split()[1].replace("−", "-")) for text in lagging[2:])
    assert soon < late


def test_an_output_that_the_search_does_not_prefer_has_a_note(screen):
    page = screen.open(run="online", text="dagibu", ended="true", policy="greedy")
    screen.wait_for_output(inflect("dagibu"))
    screen.wait("() => document.querySelectorAll('.output button').length > 1")
    assert page.locator(".note").inner_text() == ""
    screen.set_slider("#delay", 6)
    screen.wait("() => document.querySelector('.note').innerText.includes('the search prefers candidate 1')")
    assert screen.written != screen.candidates[0]


def test_pieces_of_several_symbols_are_written_in_rows_that_were_read(screen):
    page = screen.open(run="scripts", text="가민달", ended="true")
    screen.wait("() => document.querySelectorAll('.lattice-table tbody tr').length === 9")
    assert "read 8, wrote" in page.locator(".facts").inner_text()


def test_letters_that_join_are_one_text_from_right_to_left(screen):
    screen.open(run="scripts", text="가민달", ended="true")
    for selector, name, value in (
        (".tokens", "direction", "rtl"),
        (".token", "display", "inline"),
        (".output button", "direction", "rtl"),
    ):
        screen.wait_for_style(selector, name, value)
    screen.wait(
        "() => document.querySelector('.tokens').innerText === [..."
        "document.querySelectorAll('.pane:first-child .token:not(.is-pending)')].map(each => each.innerText).join('')"
    )


def test_a_long_input_shows_its_beginning_and_its_probabilities(screen):
    screen.page.set_viewport_size({"width": 1280, "height": 720})
    page = screen.open(run="online", text="dagibumote" * 9, ended="true")
    screen.wait("() => document.querySelectorAll('.output button').length > 0")
    screen.wait("() => document.querySelector('.lattice-size').offsetHeight > 1000")
    screen.wait("() => !document.querySelector('.lattice').scrollTop")  # it follows what is read until the input ends
    assert page.locator(".lattice").evaluate("each => [each.scrollLeft, each.scrollTop]") == [0, 0]
    assert page.locator(".candidate-scroll").evaluate("each => each.scrollWidth <= each.clientWidth")


def test_attention_is_explained_as_attention(screen):
    page = screen.open(run="attention", text="dagibu", ended="true")
    screen.wait("() => document.querySelectorAll('.lattice-table tbody tr').length === 7")
    page.locator("#explain").click()
    explanation = page.locator("#explanation").inner_text()
    assert "not an alignment" in explanation
    assert "staircase" not in explanation
    assert "attention that a symbol" in page.locator(".lattice-table caption").text_content()
    page.locator("#run").select_option("online")
    page.locator("#explain").click()
    assert "staircase" in page.locator("#explanation").inner_text()


def test_a_link_to_a_run_that_is_not_served_says_so(screen):
    page = screen.open(run="elsewhere", text="dagibu", ended="true")
    screen.wait("() => document.querySelector('#missing').innerText.includes('elsewhere')")
    assert "this is online" in page.locator("#missing").inner_text()
    page.locator("#run").select_option("waiting")
    assert page.locator("#missing").is_hidden()


def test_a_bidirectional_run_waits_and_says_so(screen):
    page = screen.open(run="waiting", text="")
    screen.type("dag")
    screen.wait("() => document.querySelectorAll('.token').length > 0")
    assert "both directions" in page.locator(".note").inner_text()
    assert page.locator("#stream-controls").is_hidden()


def test_two_runs_are_compared_on_one_input(screen):
    page = screen.open(run="online", text="dagibu", ended="true")
    page.locator("#compare").select_option("waiting")
    screen.wait(
        "() => [...document.querySelectorAll('.pane')].filter(pane => pane.querySelector('.token')).length === 2"
    )
    assert page.locator(".pane h2").all_inner_texts() == ["online", "waiting"]
    assert page.locator(".candidate-list").count() == 2


def test_features_are_chosen_and_change_the_output(screen):
    page = screen.open(run="genders", text="tomi", ended="true", features="N;FEM")
    screen.wait("() => document.querySelectorAll('.token').length > 2")
    before = screen.written
    page.get_by_text("choose").click()
    page.get_by_role("button", name="FEM", exact=True).click()
    page.get_by_role("button", name="MASC", exact=True).click()
    assert page.locator("#features").input_value() == "N;MASC"
    screen.wait("before => document.querySelector('.written').innerText.replace(/\\s/g, '') !== before", before)


def test_an_unknown_feature_is_refused_in_a_sentence_in_place(screen):
    page = screen.open(run="genders", text="tomi", features="N;MASK")
    screen.wait("() => document.querySelector('.pane .error')?.innerText.includes('MASK')")
    assert "did you mean MASC?" in page.locator(".pane .error").inner_text()
    page.locator("#features").fill("N;MASC")
    screen.wait("() => document.querySelectorAll('.token').length > 0")
    assert page.locator(".pane .error").inner_text() == ""
    screen.problems = [problem for problem in screen.problems if "status of 4" not in problem]


def test_weights_rank_candidates_again_without_asking_the_server(screen):
    page = screen.open_predicted(run="noisy", text="dagibu", ended="true")
    screen.wait("() => document.querySelectorAll('.lattice-table tbody tr').length === 7")
    assert "wins by" in page.locator(".verdict").inner_text()
    before, asked = screen.candidates, len(screen.requested)
    for part in ("direct", "channel", "language_model"):
        screen.set_slider(f"[data-part={part}]", 0)
    longest = max(before, key=len)
    assert screen.candidates[0] in {text for text in before if len(text) == len(longest)}
    assert sorted(screen.candidates) == sorted(before)
    assert re.search(r"the length decides|are level", page.locator(".verdict").inner_text())
    assert [url for url in screen.requested[asked:] if not url.endswith("icon.svg")] == []
    page.get_by_role("button", name="Reset").click()
    assert screen.candidates == before


def test_a_link_reproduces_the_view(screen, browser):
    page = screen.open_predicted(run="noisy", text="tomi", ended="true")
    screen.set_slider("[data-part=language_model]", 1.5)
    page.locator("#copy-link").click()
    screen.wait("() => document.querySelector('#copied').open")
    link = page.locator("#copied-text").input_value()
    assert page.evaluate("() => navigator.clipboard.readText()") == link
    before = screen.candidates
    other = screen.page.context.new_page()
    other.goto(link)
    screen.wait_for_candidates(other, before)
    assert other.locator("[data-part=language_model]").input_value() == "1.5"


def test_html_in_an_input_stays_text(screen):
    page = screen.open(run="online", text="<img src=x onerror=alert(1)>", ended="true")
    screen.wait("() => document.querySelector('.note')?.innerText.includes('<')")
    assert page.locator("img").count() == 1  # that of the heading


def test_a_lost_connection_is_opened_again_and_nothing_typed_is_lost(screen):
    sockets = []

    def pass_on(socket):
        sockets.append(socket)
        socket.connect_to_server()

    screen.page.route_web_socket(re.compile("/api/stream"), pass_on)
    page = screen.open(run="online", text="dagi")
    screen.wait("() => document.querySelectorAll('.token').length > 3")
    page.evaluate("""() => {
      window.troubles = [];
      const trouble = document.querySelector("#trouble");
      const note = () => window.troubles.push(trouble.innerText);  // it may go before anybody looks
      new MutationObserver(note).observe(trouble, { childList: true, characterData: true, subtree: true });
    }""")
    sockets[0].close(code=1012)
    screen.wait("() => window.troubles.some(each => each.includes('lost'))")
    page.locator("#text").press("End")
    page.locator("#text").press_sequentially("bu")
    page.keyboard.press("Enter")
    screen.wait_for_output(inflect("dagibu"))
    assert page.locator("#trouble").is_hidden()
    assert len(sockets) == 2


def test_what_the_page_asked_can_be_copied_as_curl_and_as_python(screen):
    page = screen.open(run="online", text="dagi'bu", ended="true")
    screen.wait("() => document.querySelectorAll('.output button').length > 0")
    page.locator("#copy-python").click()
    screen.wait("() => document.querySelector('#copied').open")
    program = page.locator("#copied-text").input_value()
    answer = json.loads(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    )
    assert [each["text"] for each in answer["predictions"][0]["nbest"]] == screen.candidates
    page.get_by_role("button", name="Close").click()
    page.locator("#copy-curl").click()
    screen.wait("() => document.querySelector('#copied-text').value.startsWith('curl')")
    command = shlex.split(page.locator("#copied-text").input_value())
    assert command[:2] == ["curl", f"{screen.address}/api/predict"]
    assert json.loads(command[command.index("-d") + 1])["inputs"] == ["dagi'bu"]


def test_a_server_with_a_token_asks_for_it_first(runs, browser):
    with serving(runs[0], "--token", "secret") as address:
        page = browser.new_page()
        page.route("**/login.js", lambda route: (time.sleep(0.5), route.continue_()))
        page.goto(f"{address}/#run=online&text=dagibu&ended=true")
        assert page.get_by_role("alert").count() == 0
        for token in ("a guess", "secret"):
            page.get_by_label("Token of this service").fill(token)
            page.keyboard.press("Enter")
            if token != "secret":
                assert page.get_by_role("alert").inner_text() == "This token is wrong."
        page.wait_for_function("() => document.querySelectorAll('.token').length === 10")
        page.locator("#copy-curl").click()
        page.wait_for_function("() => document.querySelector('#copied').open")
        assert "$ANTIPHON_TOKEN" in page.locator("#copied-text").input_value()
        page.close()

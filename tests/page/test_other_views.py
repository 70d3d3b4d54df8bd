"""Answer selection and language models on the page."""

import pytest

pytestmark = pytest.mark.browser


def test_sentences_are_ranked_and_their_words_coloured(screen):
    page = screen.open(run="answers")
    screen.wait("() => document.querySelectorAll('.ranking li').length > 0")
    page.locator("#question").fill("which colour ?")
    page.locator("#sentences").fill("the old owl was near\nthe door was red\n\nthe story")
    screen.wait(
        "() => [...document.querySelectorAll('.sentence')].some(each => each.innerText.includes('door was red'))"
    )
    assert page.locator(".ranking li").count() == 3
    words = page.locator(".ranking li", has_text="door was red").locator(".word")
    weights = [word.evaluate("word => parseInt(word.style.getPropertyValue('--weight'))") for word in words.all()]
    assert len(set(weights)) > 1
    assert max(weights) == 70
    numbers = [float(text.strip("<>")) for text in page.locator(".ranking .number").all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)


def test_an_emptied_form_has_no_ranking(screen):
    page = screen.open(run="answers")
    screen.wait("() => document.querySelectorAll('.ranking li').length > 0")
    page.locator("#sentences").fill("")
    screen.wait("() => document.querySelectorAll('.ranking').length === 0")


@pytest.mark.parametrize(
    ("link", "field", "shown"),
    [({"run": "answers"}, "#sentences", ".ranking"), ({"run": "lm", "text": "daag"}, "#language-text", ".reading")],
)
def test_what_is_refused_has_a_sentence_in_the_place_of_the_answer_before(screen, link, field, shown):
    page = screen.open(**link)
    screen.wait("shown => document.querySelectorAll(shown).length > 0", shown)
    page.locator(field).fill("da" * 1001)
    screen.wait("shown => document.querySelectorAll(shown).length === 0", shown)
    assert "2,002 characters" in page.locator(".error:visible").inner_text()
    screen.problems = [problem for problem in screen.problems if "status of 413" not in problem]


def test_examples_of_questions_can_be_clicked(screen):
    page = screen.open(run="answers")
    page.locator("#answer-examples button").nth(1).click()
    screen.wait("() => document.querySelectorAll('.ranking li').length === 4")
    assert page.locator("#question").input_value() == page.locator("#answer-examples button").nth(1).inner_text()


def test_a_language_model_shows_the_probability_of_every_token(screen):
    page = screen.open(run="lm", text="daag")
    screen.wait("() => document.querySelectorAll('.scored > li').length === 5")
    assert page.locator(".scored > li > .symbol").all_inner_texts() == ["d", "a", "a", "g", "</s>"]
    page.locator("#language-text").press_sequentially("ii")
    screen.wait("() => document.querySelectorAll('.scored > li').length === 7")
    assert "perplexity" in page.locator(".reading h2").inner_text()


def test_a_run_of_another_view_is_chosen_in_the_list(screen):
    page = screen.open(run="lm", text="daag")
    page.locator("#run").select_option("answers")
    screen.wait("() => document.querySelectorAll('.ranking li').length > 0")
    page.locator("#run").select_option("online")
    screen.wait("() => document.querySelectorAll('.token').length > 0")
    assert page.locator("#answers").is_hidden()

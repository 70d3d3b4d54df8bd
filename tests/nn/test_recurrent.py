import pytest
import torch

from antiphon.nn.recurrent import LSTM, LSTMSizes, PrefixEncoder, SourceEncoder


def sizes(layers):
    return LSTMSizes(embedding_size=5, hidden_size=4, layers=layers)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_padding_changes_no_state_of_the_source(bidirectional, layers):
    torch.manual_seed(0)
    encoder = SourceEncoder(9, sizes(layers), bidirectional=bidirectional)
    tokens, lengths = torch.randint(9, (3, 7)), torch.tensor([7, 2, 4])
    together = encoder(tokens, lengths)
    for b, length in enumerate(lengths.tolist()):
        alone = encoder(tokens[b : b + 1, :length], lengths[b : b + 1])
        torch.testing.assert_close(together[b, :length], alone[0])


def test_a_unidirectional_source_never_looks_ahead():
    encoder = SourceEncoder(9, sizes(2), bidirectional=False)
    tokens = torch.randint(9, (1, 6))
    changed = tokens.clone()
    changed[0, 4:] = (changed[0, 4:] + 1) % 9
    lengths = torch.tensor([6])
    assert torch.equal(encoder(tokens, lengths)[:, :4], encoder(changed, lengths)[:, :4])
    assert not torch.equal(encoder(tokens, lengths)[:, 4:], encoder(changed, lengths)[:, 4:])


def test_a_bidirectional_source_reads_from_both_ends():
    encoder = SourceEncoder(9, sizes(1), bidirectional=True)
    lengths = torch.tensor([4])
    first, last = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 2, 3, 5]])
    assert not torch.equal(encoder(first, lengths)[0, 0, 4:], encoder(last, lengths)[0, 0, 4:])
    assert torch.equal(encoder(first, lengths)[0, 0, :4], encoder(last, lengths)[0, 0, :4])


def test_a_prefix_goes_on_from_a_carried_state():
    torch.manual_seed(0)
    decoder = PrefixEncoder(9, sizes(2))
    tokens = torch.randint(9, (2, 5))
    at_once, _ = decoder(tokens)
    first, state = decoder(tokens[:, :3])
    rest, _ = decoder(tokens[:, 3:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1), at_once)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_source_read_token_by_token_gives_the_same_states(layers):
    torch.manual_seed(0)
    encoder = SourceEncoder(9, sizes(layers), bidirectional=False)
    tokens = torch.randint(9, (3, 5))
    at_once = encoder(tokens, torch.full((3,), 5))
    state = None
    for i in range(5):
        states, state = encoder.step(tokens[:, i], state)
        torch.testing.assert_close(states, at_once[:, i])


def test_the_forget_bias_is_added_to_the_forget_gates_alone():
    torch.manual_seed(0)
    plain = LSTM(3, 4, layers=2)
    torch.manual_seed(0)
    remembering = LSTM(3, 4, layers=2, forget_bias=1.0)
    for layer in range(2):
        before, after = (getattr(lstm, f"bias_ih_l{layer}") for lstm in (plain, remembering))
        added = torch.zeros(16)
        added[4:8] = 1.0
        torch.testing.assert_close(after - before, added)


@pytest.mark.parametrize("layers", [1, 3])
def test_single_steps_give_what_the_whole_sequence_gives(layers):
    torch.manual_seed(0)
    lstm = LSTM(4, 5, layers).double()
    inputs = torch.randn(3, 6, 4, dtype=torch.float64)
    states, (hidden, cell) = lstm(inputs)
    state = None
    for position in range(6):
        output, state = lstm.step(inputs[:, position], state)
        torch.testing.assert_close(output, states[:, position])
    torch.testing.assert_close(state, (hidden, cell))


@pytest.mark.parametrize("from_zero", [True, False])
def test_layers_one_at_a_time_give_what_all_at_once_give(from_zero):
    torch.manual_seed(0)
    lstm = LSTM(4, 5, 3, dropout=0.5).double().eval()
    inputs = torch.randn(2, 6, 4, dtype=torch.float64)
    state = None if from_zero else (torch.randn(3, 2, 5).double(), torch.randn(3, 2, 5).double())
    torch.testing.assert_close(lstm._layer_by_layer(inputs, state), lstm(inputs, state))


@pytest.mark.parametrize("layers", [1, 2])
def test_the_last_state_is_that_of_each_sequence_alone_however_it_is_found(layers):
    torch.manual_seed(1)
    reader, inputs, lengths = LSTM(6, 5, layers), torch.randn(3, 4, 6), torch.tensor([4, 1, 3])
    for hidden, cell in (reader.last_state(inputs, lengths), reader._last_state_by_step(inputs, lengths)):
        for number, length in enumerate(lengths):
            _, alone = reader(inputs[number : number + 1, :length])
            torch.testing.assert_close(hidden[:, number], alone[0][:, 0])
            torch.testing.assert_close(cell[:, number], alone[1][:, 0])

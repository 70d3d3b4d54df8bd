"""From text files to batches of token ids: readers, tokenise, vocab, corpus, batch."""

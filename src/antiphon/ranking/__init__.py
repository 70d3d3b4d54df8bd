"""Answer selection: ranks given answers to questions."""

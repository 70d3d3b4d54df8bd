"""Answer selection: ranks given answers to questions, and brings the task that trains such rankers.

* data: ``questions`` (formats, and which of them are used), ``question_batches`` (encoded pairs, or whole
  questions)
* networks: ``matchers`` and their losses over ``sentence_models`` with ``word_vectors``
* rankers: ``rankers`` with ``overlap`` (words in common), ``saved_rankers`` in run folders
* training: ``matching_task``
"""

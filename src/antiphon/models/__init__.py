"""Models: ordinary ``torch.nn.Module``s on batches of token ids.

``left_to_right`` (the interfaces that decoding and training use), ``transducer``, ``recurrent`` (encoder-decoder,
attention, language model), ``transformer``, ``ensemble_model``, ``noisy_channel`` (three models with their weights).
"""

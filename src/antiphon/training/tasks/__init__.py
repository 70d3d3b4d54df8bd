"""What can be trained: models that generate, models that match, and what is learnt by counting."""

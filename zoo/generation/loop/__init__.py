"""The loop: sequences join a batch, get a token a step, and leave."""

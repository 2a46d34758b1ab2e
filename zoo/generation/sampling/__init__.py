"""From logits to the next token. The order, of which each step is left out where nothing asks for it:

1. `logit_bias` is added;
2. penalties: repetition, presence and frequency, DRY;
3. tokens are removed: `banned` texts, repeated n-grams, what a generation_config.json forbids;
4. end tokens are removed until `min_tokens`, or a forced token is left alone;
5. a grammar removes what it does not allow; greedy choice takes the largest logit of what is left;
6. the temperature divides;
7. filters: top-n-sigma, top-k, top-p, min-p, typical, XTC, plugins' samplers, Mirostat;
8. the draw, in proportion to the probabilities of what is left.

Steps 1 to 5 are `LogitsProcessors`, for every strategy; `TokenSampler` adds the others.
"""

from zoo.generation.sampling.draw import TokenSampler
from zoo.generation.sampling.logits_processors import LogitsProcessors, processors_of

__all__ = ["LogitsProcessors", "TokenSampler", "processors_of"]

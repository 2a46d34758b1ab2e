"""From logits to the next token. The order, of which each step is left out where nothing asks for it:

1. guidance: the logits become log-probabilities, led away from those of the negative prompt;
2. `logit_bias` is added;
3. penalties: repetition, presence and frequency, DRY;
4. tokens are removed: `banned` texts, repeated n-grams, what a generation_config.json forbids;
5. end tokens are removed until `min_tokens`, or a forced token is left alone;
6. the logits of end tokens grow (`exponential_decay_length_penalty`);
7. custom logits processors: the caller's `logits_processors`, then those of plugins among `samplers`;
8. a grammar removes what it does not allow; greedy choice takes the largest logit of what is left;
9. the temperature divides;
10. filters: top-n-sigma, top-k, top-p, min-p, typical, XTC, plugins' samplers, Mirostat;
11. the draw, in proportion to the probabilities of what is left.

Steps 1 to 8 are `LogitsProcessors`, for every strategy; `TokenSampler` adds the others. The steps that transformers has are
in its order.
"""

from zoo.generation.sampling.draw import TokenSampler, sampler_of
from zoo.generation.sampling.logits_processors import LogitsProcessors, processors_of

__all__ = ["LogitsProcessors", "TokenSampler", "processors_of", "sampler_of"]

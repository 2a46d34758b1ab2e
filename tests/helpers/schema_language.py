"""Whether a text is of the language of a JSON schema's grammar."""

from llguidance import LLMatcher, LLTokenizer

from zoo.generation.grammar.compile import compile_grammar


class _Bytes:
    """A tokenizer whose tokens are the bytes, with an end token, as llguidance asks for it."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (256,)
    eos_token_id = 256

    def __call__(self, text):
        return []


def allows(schema, *texts):
    """Of each text, whether it is a document that the grammar of the schema allows."""
    matcher = LLMatcher(LLTokenizer(_Bytes()), compile_grammar(json_schema=schema).lark, log_level=0)
    found = []
    for text in texts:
        matcher.reset()
        ids = list(text.encode())
        fits = matcher.validate_tokens(ids) == len(ids)
        found.append(fits and matcher.consume_tokens(ids) and matcher.is_accepting())
    return found

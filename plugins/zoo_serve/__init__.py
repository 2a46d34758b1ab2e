"""`zoo serve`: an HTTP server that clients of OpenAI's, Anthropic's and Ollama's interfaces speak to. Imports no mlx."""

from zoo.architecture import Command, hookimpl


@hookimpl
def zoo_commands():
    yield Command(
        "serve",
        "zoo_serve.command:serve",
        "Serve models over HTTP, to clients of OpenAI's, Anthropic's and Ollama's interfaces.",
        group="Run",
        ranks=True,
    )

"""What the command `zoo serve` says before a server starts."""

from tests.helpers.invoked import invoke
from zoo_serve import command


def test_a_library_that_is_missing_is_named_with_what_installs_it(tmp_path, monkeypatch):
    find = command.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "starlette" else find(name))
    result = invoke(tmp_path, ["serve", "llama"])
    assert result.returncode == 2 and result.stdout == ""
    [line] = [line for line in result.stderr.splitlines() if "mlx-zoo" in line]
    assert "it needs starlette, which the extra `serve` installs: pip install 'mlx-zoo[serve]'" in line

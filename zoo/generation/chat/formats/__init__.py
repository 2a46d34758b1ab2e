"""The public formats of tool calls, a file each family. `zoo/host/call_formats.py` says which template has which."""

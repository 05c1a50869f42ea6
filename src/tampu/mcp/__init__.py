"""The MCP server: tools, resources and prompts for language models, over any open store.

`tampu mcp` speaks it over stdio, `tampu serve` under ``/mcp``. Nothing here decides what a caller may do: over HTTP
each call goes through the server's own API with the caller's key. Here is only which tools a caller sees.

Not here: the route and the caller (`tampu.server`), the command (`tampu.cli`), and the verbs (`tampu.broker`).
"""

"""How script calls get to the servers: urls, routes, connections, pipelines, and the Lua scripts."""

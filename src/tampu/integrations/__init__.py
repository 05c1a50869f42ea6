"""tampu under other libraries' interfaces. Each package here needs that library; nothing else of tampu does."""

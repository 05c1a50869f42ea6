"""`tampu top`: what happens in a store now. `overview` gathers it, `view` draws it."""

"""What may happen: the verbs users call, checked and resolved here, and carried out by whichever engine there is."""

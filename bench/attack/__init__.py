"""Known attacks on a server, as a program: it starts a server, attacks it, and says what honest clients noticed."""

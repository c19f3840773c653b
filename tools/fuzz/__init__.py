"""Whatever bytes come: everything that reads what others wrote answers them or refuses them, quickly and in words."""

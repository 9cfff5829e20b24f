"""What other implementations are known to get wrong, asked of ours."""

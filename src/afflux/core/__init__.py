"""Define what all protocols share: declarations, transition tables, credit, limits, errors and the engine contract."""

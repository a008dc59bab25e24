"""HexiScale (FlashFlex): plans that it writes, and a plan written for it."""

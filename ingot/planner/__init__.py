"""What a recipe would cost before it runs: layouts, memory, speed and money, and a look at the machine (doctor)."""

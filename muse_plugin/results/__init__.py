"""What measured results have in common: figures, and the record of the machine and versions behind a number."""

"""What models, tasks and criterions agree on, so that none of them imports another."""

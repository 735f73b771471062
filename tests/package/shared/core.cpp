int in_core();
int in_core() { return 40; }

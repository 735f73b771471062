int in_upper();
#ifdef WITH_CORE
int in_core();
int main() { return in_core() == 40 && in_upper() == 42 ? 0 : 1; }
#else
int main() { return in_upper() == 42 ? 0 : 1; }
#endif

/* The first process of a pod: waits, reaps orphans when it is process 1 for all containers, and ends when told to. It
   says when it can be told: before that, a process 1 does not hear it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(int signal) {
    (void)signal;
    _exit(0);
}

static void reap(int signal) {
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction on_stop = {.sa_handler = stop};
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGINT, &on_stop, NULL) != 0 || sigaction(SIGTERM, &on_stop, NULL) != 0 ||
        sigaction(SIGCHLD, &on_child, NULL) != 0) {
        return 1;
    }
    /* The first process of a sandbox has nobody to tell. */
    if (write(STDOUT_FILENO, "ready\n", 6) != 6) {
        close(STDOUT_FILENO);
    }
    for (;;) {
        pause();
    }
}

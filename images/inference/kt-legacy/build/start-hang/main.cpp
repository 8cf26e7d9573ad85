// Starts a queue where the new thread runs first, on memory that is not zero: the worst that may
// happen, made certain. Ends with 0 when the first task was done.
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "task_queue.h"

extern "C" int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
extern "C" int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                     void *(*run)(void *), void *argument) {
    int result = __real_pthread_create(thread, attributes, run, argument);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return result;
}

int main() {
    alignas(TaskQueue) static unsigned char memory[sizeof(TaskQueue)];
    std::memset(memory, 1, sizeof(memory));
    auto *queue = new (memory) TaskQueue();
    bool done = false;
    queue->enqueue([&done] { done = true; });
    queue->sync();
    return done ? 0 : 1;
}

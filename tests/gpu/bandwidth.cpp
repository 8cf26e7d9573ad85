// The memory's speed as STREAM measures it: `bandwidth MEGABYTES THREADS...`, g++ -O3 -fopenmp.
// For each number of threads a line of JSON: bytes a second of a[i] = b[i] + 3 c[i], which moves three
// arrays as STREAM counts, and of a sum, which only reads, as experts do. The best of five.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <omp.h>

using Clock = std::chrono::steady_clock;

static double seconds(Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
}

int main(int count, char **words) {
    const long size = std::atol(words[1]) * 1000000L / 8;
    std::unique_ptr<double[]> held(new double[3 * size]);
    double *const a = held.get(), *const b = a + size, *const c = b + size;
    double kept = 0;
#pragma omp parallel for
    for (long i = 0; i < size; i++) a[i] = b[i] = c[i] = 1;
    for (int word = 2; word < count; word++) {
        const int threads = std::atoi(words[word]);
        omp_set_num_threads(threads);
        double triad = 0, read = 0;
        for (int time = 0; time < 5; time++) {
            auto began = Clock::now();
#pragma omp parallel for
            for (long i = 0; i < size; i++) a[i] = b[i] + 3 * c[i];
            const double moved = 24.0 * size / seconds(began);
            if (moved > triad) triad = moved;

            // Eight sums, so that no addition has to wait for the one before.
            double sum = 0;
            began = Clock::now();
#pragma omp parallel reduction(+ : sum)
            {
                double part[8] = {};
#pragma omp for
                for (long i = 0; i < size / 8; i++)
                    for (int n = 0; n < 8; n++) part[n] += b[8 * i + n];
                for (double one : part) sum += one;
            }
            const double seen = 8.0 * size / seconds(began);
            if (seen > read) read = seen;
            kept += sum;
        }
        std::printf("{\"threads\": %d, \"triad\": %.0f, \"read\": %.0f}\n", threads, triad, read);
        std::fflush(stdout);
    }
    return kept > 0 ? 0 : 1;
}

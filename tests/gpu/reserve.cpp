// What llama.cpp would reserve on cards, asked of its own scheduler and allocator: the cards are not
// there. They take every operation that its CUDA code takes for DeepSeek's models, keep nothing, and
// compute nothing. Weights are not read, so the file may be hollow. See reserve.sh.
//
//     reserve MODEL CONTEXT SLOTS CARDS
#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "llama.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int MOST_CARDS = 16;
constexpr size_t ALIGNMENT = 128;             // of ggml-cuda's buffers
constexpr int64_t PADDED_ROW = 512;           // and to so many numbers it fills up quantised rows
constexpr int64_t OFFLOADED_FROM_TOKENS = 32; // GGML_OP_OFFLOAD_MIN_BATCH's default
constexpr size_t CARD_BYTES = size_t(1) << 40;

int cards;
std::string names[MOST_CARDS];
ggml_backend_device devices[MOST_CARDS];
ggml_backend_buffer_type on_card[MOST_CARDS];
ggml_backend_buffer_type pinned;
ggml_backend_reg registry;
ggml_guid guid = {0x7e, 0x5e, 0x7e};

int number_of(ggml_backend_dev_t device) { return int(device - devices); }

// Address space alone: no page of it is ever touched.
void *address_space(size_t size) {
    void *found = mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? nullptr : found;
}

ggml_backend_buffer_i hollow_buffer() {
    ggml_backend_buffer_i made{};
    made.free_buffer = [](ggml_backend_buffer_t buffer) { munmap(buffer->context, buffer->size ? buffer->size : 1); };
    made.get_base = [](ggml_backend_buffer_t buffer) { return buffer->context; };
    made.memset_tensor = [](ggml_backend_buffer_t, ggml_tensor *, uint8_t, size_t, size_t) {};
    made.set_tensor = [](ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t) {};
    made.get_tensor = [](ggml_backend_buffer_t, const ggml_tensor *, void *data, size_t, size_t size) {
        memset(data, 0, size);
    };
    made.clear = [](ggml_backend_buffer_t, uint8_t) {};
    return made;
}

size_t size_on_card(ggml_backend_buffer_type_t, const ggml_tensor *tensor) {
    const int64_t over = tensor->ne[0] % PADDED_ROW;
    const bool padded = ggml_is_quantized(tensor->type) && over != 0;
    return ggml_nbytes(tensor) + (padded ? ggml_row_size(tensor->type, PADDED_ROW - over) : 0);
}

void make_buffer_types() {
    for (int card = 0; card < cards; ++card) {
        ggml_backend_buffer_type &type = on_card[card];
        type.device = &devices[card];
        type.iface.get_name = [](ggml_backend_buffer_type_t of) { return names[number_of(of->device)].c_str(); };
        type.iface.alloc_buffer = [](ggml_backend_buffer_type_t of, size_t size) {
            return ggml_backend_buffer_init(of, hollow_buffer(), address_space(size), size);
        };
        type.iface.get_alignment = [](ggml_backend_buffer_type_t) { return ALIGNMENT; };
        type.iface.get_alloc_size = size_on_card;
    }
    pinned = *ggml_backend_cpu_buffer_type();
    pinned.device = &devices[0];
    pinned.iface.get_name = [](ggml_backend_buffer_type_t) { return "CUDA_Host"; };
    pinned.iface.alloc_buffer = [](ggml_backend_buffer_type_t of, size_t size) {
        ggml_backend_buffer_t made = ggml_backend_cpu_buffer_from_ptr(address_space(size), size);
        made->buft = of;
        return made;
    };
}

// The kernel that weighs and adds up the experts' results in one go wants its inputs kept till the end.
void keep_experts_results(ggml_backend_t, ggml_cgraph *graph, ggml_backend_graph_optimize_params *params) {
    const std::string weighted = "ffn_moe_weighted", sum = "ffn_moe_out";
    for (int first = 0; first < graph->n_nodes; ++first) {
        ggml_tensor *node = graph->nodes[first];
        if (node->op != GGML_OP_MUL || weighted.compare(0, weighted.size(), node->name, weighted.size()) != 0) {
            continue;
        }
        for (int last = first; last < graph->n_nodes; ++last) {
            if (sum.compare(0, sum.size(), graph->nodes[last]->name, sum.size()) == 0) {
                params->add_alloc_dep(params->user_data, node->src[0], graph->nodes[last]);
                params->add_alloc_dep(params->user_data, node->src[1], graph->nodes[last]);
                break;
            }
        }
    }
}

ggml_backend_t a_backend(ggml_backend_dev_t device, const char *) {
    ggml_backend_i made{};
    made.get_name = [](ggml_backend_t of) { return names[number_of(of->device)].c_str(); };
    made.free = [](ggml_backend_t of) { delete of; };
    made.synchronize = [](ggml_backend_t) {};
    made.graph_compute = [](ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_SUCCESS; };
    made.graph_optimize = keep_experts_results;
    return new ggml_backend{&guid, made, device, nullptr};
}

// Fused attention: of DeepSeek's heads the compressed ones alone, 576 numbers of a key and 512 of a value.
bool takes(ggml_backend_dev_t device, const ggml_tensor *op) {
    for (const ggml_tensor *source : op->src) {
        ggml_backend_buffer_type_t of = source && source->buffer ? source->buffer->buft : nullptr;
        if (of >= on_card && of < on_card + cards && of->device != device) {
            return false;
        }
    }
    return op->op != GGML_OP_FLASH_ATTN_EXT || (op->src[1]->ne[0] == 576 && op->src[2]->ne[0] == 512);
}

bool wants(ggml_backend_dev_t, const ggml_tensor *op) {
    const bool of_experts = op->op == GGML_OP_MUL_MAT_ID, looks_up = op->op == GGML_OP_GET_ROWS;
    const int64_t tokens = of_experts ? op->ne[2] : op->op == GGML_OP_MUL_MAT ? op->ne[1] : ggml_nrows(op);
    return !looks_up && tokens >= OFFLOADED_FROM_TOKENS;
}

void make_devices() {
    for (int card = 0; card < cards; ++card) {
        names[card] = "CUDA" + std::to_string(card);
        devices[card].reg = &registry;
        ggml_backend_device_i &made = devices[card].iface;
        made.get_name = [](ggml_backend_dev_t of) { return names[number_of(of)].c_str(); };
        made.get_description = made.get_name;
        made.get_memory = [](ggml_backend_dev_t, size_t *free, size_t *total) { *free = *total = CARD_BYTES; };
        made.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
        made.get_props = [](ggml_backend_dev_t of, ggml_backend_dev_props *props) {
            *props = {};
            props->name = props->description = names[number_of(of)].c_str();
            props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
            props->memory_free = props->memory_total = CARD_BYTES;
            props->caps.async = props->caps.host_buffer = props->caps.events = true;
        };
        made.init_backend = a_backend;
        made.get_buffer_type = [](ggml_backend_dev_t of) { return &on_card[number_of(of)]; };
        made.get_host_buffer_type = [](ggml_backend_dev_t) { return &pinned; };
        made.supports_op = takes;
        made.supports_buft = [](ggml_backend_dev_t of, ggml_backend_buffer_type_t type) {
            return type == &on_card[number_of(of)];
        };
        made.offload_op = wants;
    }
    registry.api_version = GGML_BACKEND_API_VERSION;
    registry.iface.get_name = [](ggml_backend_reg_t) { return "CUDA"; };
    registry.iface.get_device_count = [](ggml_backend_reg_t) { return size_t(cards); };
    registry.iface.get_device = [](ggml_backend_reg_t, size_t card) { return &devices[card]; };
    registry.iface.get_proc_address = [](ggml_backend_reg_t, const char *) -> void * { return nullptr; };
}

void say(ggml_log_level level, const char *text, void *) {
    if (level >= GGML_LOG_LEVEL_ERROR || strstr(text, "buffer size") || strstr(text, "splits =")) {
        fputs(text, stdout);
    }
}

} // namespace

int main(int count, char **words) {
    if (count != 5 || atoi(words[4]) < 1 || atoi(words[4]) > MOST_CARDS) {
        fputs("usage: reserve MODEL CONTEXT SLOTS CARDS\n", stderr);
        return 2;
    }
    cards = atoi(words[4]);
    make_devices();
    make_buffer_types();
    llama_log_set(say, nullptr);
    llama_backend_init();

    std::vector<ggml_backend_dev_t> chosen;
    for (int card = 0; card < cards; ++card) {
        chosen.push_back(&devices[card]);
    }
    chosen.push_back(nullptr);
    const std::vector<float> even(llama_max_devices(), 1.0F);
    // As --cpu-moe has it.
    const llama_model_tensor_buft_override experts_in_ram[] = {
        {R"(\.ffn_(up|down|gate|gate_up)_(ch|)exps)", ggml_backend_cpu_buffer_type()},
        {nullptr, nullptr},
    };
    llama_model_params model = llama_model_default_params();
    model.devices = chosen.data();
    model.tensor_split = even.data();
    model.n_gpu_layers = 1 << 20;
    model.load_mode = LLAMA_LOAD_MODE_MMAP;
    model.tensor_buft_overrides = experts_in_ram;
    llama_model *loaded = llama_model_load_from_file(words[1], model);
    if (loaded == nullptr) {
        return 1;
    }
    // As llama-server has it where nothing else is asked for.
    llama_context_params context = llama_context_default_params();
    context.n_seq_max = context.n_outputs_max = atoi(words[3]);
    context.n_ctx = atoi(words[2]) * context.n_seq_max;
    context.n_batch = 2048;
    context.n_ubatch = 512;
    return llama_init_from_model(loaded, context) == nullptr;
}

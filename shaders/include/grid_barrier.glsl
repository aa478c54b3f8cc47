// A barrier of all workgroups of a dispatch, which must all run at once. The including shader declares the specialization constant PATIENCE, a
// buffer `coherent buffer Progress { uint progress[]; }` of BARRIER_WORDS words that are 0, and before this file
//     #define FAILED <a word of a coherent buffer, 0 until a wait fails>
// A workgroup may report its end of a phase, do what depends on nobody, and await the others afterwards. What passes between workgroups is in
// `coherent` buffers (GL_KHR_memory_scope_semantics). The wait is bounded: when it ends without the others, FAILED is set and nobody waits that
// long again. `leave`, at the end, makes `progress` 0 again once the last workgroup gets there.
//
// lavapipe takes an atomic operation with an order for a barrier of the workgroup, at which only one of its subgroups then arrives: what comes
// after is missing (docs/drivers.md). Where PATIENCE is 1, as it is for CPUs, atomic operations have no order: a CPU's are in order anyway.
#ifndef GRID_BARRIER_GLSL
#define GRID_BARRIER_GLSL

// Barriers take SLOTS counters in turn, a cache line apart, so that who reports at the next one does not disturb who still waits at this one.
// Counters only rise until all leave. The word behind them counts who left.
const uint SLOT_WORDS = 32, SLOTS = 8, BARRIER_WORDS = (SLOTS + 1) * SLOT_WORDS;
uint passed = 0;

void synchronize() {
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

const bool ORDERED = PATIENCE > 1u;

void report() {
    synchronize();
    if (gl_LocalInvocationIndex == 0u) {
        uint word = passed % SLOTS * SLOT_WORDS;
        if (ORDERED) atomicAdd(progress[word], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease);
        else atomicAdd(progress[word], 1u);
    }
}

void await() {
    if (gl_LocalInvocationIndex == 0u) {
        uint slot = passed % SLOTS * SLOT_WORDS, all = (passed / SLOTS + 1u) * gl_NumWorkGroups.x, counted = 0u;
        for (uint tries = 1u; tries <= PATIENCE; ++tries) {
            if (ORDERED) counted = atomicLoad(progress[slot], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire);
            else counted = atomicLoad(progress[slot], gl_ScopeDevice, 0, 0);
            if (counted >= all || (tries % 1024u == 0u && FAILED != 0u)) break;
        }
        if (counted < all) FAILED = 1u;
    }
    synchronize();
    ++passed;
}

// Whether all others have left: the last one has seen them pass their last barrier.
bool leave() {
    if (gl_LocalInvocationIndex != 0u) return false;
    uint before;
    if (ORDERED) before = atomicAdd(progress[SLOTS * SLOT_WORDS], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
    else before = atomicAdd(progress[SLOTS * SLOT_WORDS], 1u);
    if (before + 1u < gl_NumWorkGroups.x) return false;
    for (uint i = 0u; i <= SLOTS; ++i) atomicStore(progress[i * SLOT_WORDS], 0u, gl_ScopeDevice, 0, 0);
    return true;
}

#endif

package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What an adapter's folder must hold, and what its configuration may say. */
class AdapterFolderTest extends AdapterFixture {
  @Test
  void aFolderOpensItsBase() throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    write(",'r': 3");
    try (Checkpoint byFolder = Checkpoint.open(adapter);
        Checkpoint merged = open()) {
      Same.model(merged, byFolder);
    }
    replaceBase("../base");
    try (Checkpoint byFolder = Checkpoint.open(adapter)) {
      assertEquals(Optional.of(adapter), byFolder.adapter());
    }
    replaceBase("somebody/gpt2-of-theirs");
    Refusal.of(
        () -> Checkpoint.open(adapter).close(),
        "adapter of somebody/gpt2-of-theirs, which is not here",
        "as its adapter");
    Files.writeString(adapter.resolve("adapter_config.json"), "{\"peft_type\": \"LORA\"}");
    Refusal.of(() -> Checkpoint.open(adapter).close(), "names no base_model_name_or_path");
    Files.copy(ModelFolder.weights(base), ModelFolder.weights(adapter));
    Refusal.of(() -> Checkpoint.open(adapter).close(), "holds a model", "and an adapter");
    Refusal.of(() -> Checkpoint.open(base, null, base).close(), "is no adapter");
  }

  private void replaceBase(String name) throws IOException {
    Path file = adapter.resolve("adapter_config.json");
    Files.writeString(
        file,
        Files.readString(file)
            .replaceAll("(\"base_model_name_or_path\": )\"[^\"]*\"", "$1\"" + name + "\""));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "'use_dora': true | use_dora",
        "'lora_bias': true | lora_bias",
        "'layer_replication': [[0, 1]] | layer_replication",
        "'trainable_token_indices': [3] | trainable_token_indices",
        "'target_parameters': ['x'] | target_parameters",
        "'init_lora_weights': 'pissa_niter_4' | init_lora_weights pissa_niter_4",
        "'init_lora_weights': 'olora' | olora",
        "'loftq_config': {'bits': 4} | loftq_config"
      })
  void refusesOtherKinds(String field, String word) throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    write(",'r': 3," + field);
    refused("adapter_config.json", word);
  }

  @Test
  void fieldsWithoutEffect() throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    write(
        ",'r': 3, 'use_dora': false, 'layer_replication': null, 'loftq_config': {}, 'x': NaN,"
            + " 'target_modules': ['c_attn'], 'init_lora_weights': 'gaussian', 'new_kind': true");
    try (Checkpoint merged = open()) {
      assertTrue(
          merged.notes().getFirst().contains("sets x, new_kind, which Loupe doesn't know"),
          merged.notes()::toString);
    }
  }

  private void tensor(String name, String word, long... shape) throws IOException {
    tensors.clear();
    put(name, shape);
    write(",'r': 3");
    refused("adapter_model.safetensors", word);
  }

  @Test
  void refusesWhatDoesNotFit() throws IOException {
    for (String kind : List.of("ADALORA", "IA3", "PREFIX_TUNING")) {
      Files.writeString(
          adapter.resolve("adapter_config.json"), "{\"peft_type\": \"" + kind + "\"}");
      refused("adapter of type " + kind);
    }
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    config(",'r': 3");
    refused("no adapter_model.safetensors or adapter_model.bin");
    tensor(FRONT + "h.0.attn.c_attn.lora_A.weight", "one matrix of two for h.0.attn.c_attn", 3, C);
    tensor(FRONT + "h.0.attn.c_attn.lora_magnitude_vector", "lora_magnitude_vector", C);
    tensor(FRONT + "h.0.attn.c_attn.lora_B.bias", "lora_B.bias", C);
    tensor(FRONT + "h.0.attn.q_proj.lora_A.weight", "h.0.attn.q_proj", 3, C);
    tensor("base_model.model.layers.0.q_proj.lora_A.weight", "a GPT-2 doesn't have", 3, C);
    tensor(FRONT + "h.7.ln_1.weight", "h.7.ln_1.weight", C);
    tensors.clear();
    linear("h.0.attn.c_attn", 3, C, C);
    write(",'r': 3");
    refused("A [3, 50] and B [50, 3] don't fit h.0.attn.c_attn, which is [50, 150]");
    Files.writeString(
        adapter.resolve("adapter_model.safetensors"), "version https://git-lfs.github.com/spec/v1");
    refused("adapter_model.safetensors", "Git LFS pointer");
  }
}

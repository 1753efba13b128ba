package dev.loupe.weights.format;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.GgufModel;
import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.PickleWriter;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.TorchWriter;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Files of other programs: the message names the cause. */
class ForeignFilesTest {
  @TempDir Path folder;

  private void refused(Object... words) {
    Refusal.of(() -> Checkpoint.open(folder).close(), words);
  }

  @ParameterizedTest
  @CsvSource({
    "tf_model.h5, Keras",
    "flax_model.msgpack, Flax",
    "onnx/model.onnx, ONNX",
    "model.onnx, ONNX",
    "rust_model.ot, rust-bert"
  })
  void inAFolder(String name, String program) throws IOException {
    Files.createDirectories(folder.resolve(name).getParent());
    Files.writeString(folder.resolve(name), "x");
    Files.writeString(folder.resolve("config.json"), "{}");
    refused(folder, program);
  }

  @ParameterizedTest
  @CsvSource({"'\u0089HDF\r\n\u001a\n....', Keras", "'\u0081\u00a6params', Flax"})
  void byTheirBytes(String bytes, String program) throws IOException {
    Path file = Files.write(folder.resolve("any"), bytes.getBytes(StandardCharsets.ISO_8859_1));
    Refusal.of(() -> Checkpoint.open(file).close(), file, program, "transformers 4");
  }

  private void torch(Object root) throws IOException {
    Files.write(folder.resolve("pytorch_model.bin"), TorchWriter.plain().zip("a/", root));
  }

  @ParameterizedTest
  @CsvSource({
    "language_model.embedding.word_embeddings.weight, Megatron-LM",
    "decoder.layers.0.self_attention.linear_qkv.weight, Megatron-LM",
    "transformer.layers.0.attention.query_key_value.weight, Megatron-LM",
    "decoder.layers.0.self_attn.k_proj.weight, fairseq",
    "decoder.embed_tokens.weight, fairseq"
  })
  void otherProgramsNames(String name, String program) throws IOException {
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> model = new LinkedHashMap<>();
    model.put(
        name,
        writer.tensor(new SafetensorsWriter.Entry(name, DType.F32, List.of(1L)), new byte[4]));
    Map<String, Object> root = new LinkedHashMap<>();
    root.put("args", PickleWriter.call("argparse", "Namespace", List.of()));
    root.put("model", model);
    Files.write(folder.resolve("pytorch_model.bin"), writer.zip("a/", root));
    Files.writeString(folder.resolve("config.json"), CONFIG);
    refused("pytorch_model.bin", program, "convert it");
    Files.delete(folder.resolve("pytorch_model.bin"));
    ModelFolder.write(
        ModelFolder.weights(folder),
        Map.of(new SafetensorsWriter.Entry(name, DType.F32, List.of(1L)), new byte[4]));
    refused("model.safetensors", program, "convert it");
  }

  private static final String CONFIG =
      "{\"n_layer\":1,\"n_head\":2,\"n_embd\":6,\"n_positions\":4,\"vocab_size\":5}";

  @ParameterizedTest
  @CsvSource({
    "megatron.core.enums, ModelType, Megatron-LM",
    "fairseq.dataclass.configs, FairseqConfig, fairseq"
  })
  void otherProgramsTypes(String module, String type, String program) throws IOException {
    torch(Map.of("args", PickleWriter.call(module, type, List.of(1))));
    refused("pytorch_model.bin", module + "." + type, program);
  }

  @ParameterizedTest
  @ValueSource(strings = {"config.json", "model.safetensors", "generation_config.json"})
  void aPointerOfGitLfs(String name) throws IOException {
    ModelFolder.random(folder, ModelFolder.LEAST, RandomCheckpoint.Layout.PLAIN);
    Files.writeString(
        folder.resolve(name),
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
    refused(folder.resolve(name), "Git LFS pointer", "git lfs pull");
  }

  @ParameterizedTest
  @CsvSource({
    "\"pruned_heads\": {\"0\": [1]}, pruned_heads",
    "\"quantization_config\": {\"load_in_8bit\": true}, quantization_config"
  })
  void configsOfOtherModels(String field, String word) throws IOException {
    ModelFolder.random(folder, ModelFolder.LEAST, RandomCheckpoint.Layout.PLAIN);
    ModelFolder.replace(ModelFolder.config(folder), "{", "{" + field + ",");
    refused("config.json", word);
  }

  @Test
  void headsThatWereNotPruned() throws IOException {
    ModelFolder.random(folder, ModelFolder.LEAST, RandomCheckpoint.Layout.PLAIN);
    ModelFolder.replace(
        ModelFolder.config(folder),
        "{",
        "{\"pruned_heads\": {\"1\": []}, \"quantization_config\": null,");
    Checkpoint.open(folder).close();
  }

  @ParameterizedTest
  @CsvSource({"16, IQ2_XXS", "22, IQ2_S", "29, IQ1_M", "34, TQ1_0", "39, MXFP4", "77, 77"})
  void typesOfGgml(int number, String name) throws IOException {
    GgufModel model = new GgufModel(1, 32, 64, 5, 7, false);
    model.file.tensor("output.weight", number, new byte[4], 32, 7);
    Path file = Files.write(folder.resolve("x.gguf"), model.file.bytes());
    Refusal.of(
        () -> Checkpoint.open(file).close(),
        "lm_head.weight is stored as ggml's type " + name,
        "IQ4_XS");
  }
}

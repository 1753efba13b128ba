package dev.loupe.weights.config;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class ConfigJsonTest {
  private static final String LEAST =
      "'n_layer':2,'n_head':3,'n_embd':12,'n_positions':16,'vocab_size':50257";

  @TempDir Path folder;

  /** Reads a config of these fields, in single quotes to be legible. */
  private Gpt2Config read(String fields) throws IOException {
    Path file = folder.resolve("config.json");
    Files.writeString(file, "{" + fields.replace('\'', '"') + "}");
    return ConfigJson.read(file).config();
  }

  private void refused(String fields, Object... words) {
    Refusal.of(() -> read(fields), words);
    Refusal.of(() -> read(fields), folder.resolve("config.json"));
  }

  @Test
  void fillsInTheDefaultsOfTransformers() throws IOException {
    assertEquals(
        new Gpt2Config(
            2, 3, 12, 16, 50257, 48, Activation.GELU_NEW, 1e-5f, true, false, 50256, 50256),
        read(LEAST));
  }

  @Test
  void readsEveryField() throws IOException {
    assertEquals(
        new Gpt2Config(2, 3, 12, 16, 99, 7, Activation.RELU, 1e-6f, false, true, 5, 6),
        read(
            "'model_type':'gpt2','n_layer':2,'n_head':3,'n_embd':12,'n_positions':16,'n_ctx':8,"
                + "'vocab_size':99,'n_inner':7,'activation_function':'relu',"
                + "'layer_norm_epsilon':1e-06,'scale_attn_weights':false,"
                + "'scale_attn_by_inverse_layer_idx':true,'bos_token_id':5,'eos_token_id':6,"
                + "'reorder_and_upcast_attn':true,'add_cross_attention':false,"
                + "'task_specific_params':{'n_layer':{'deep':[1,{'n_head':4}]}},'x':null"));
  }

  @Test
  void fallsBackToNCtx() throws IOException {
    String others = "'n_layer':2,'n_head':3,'n_embd':12,'vocab_size':9";
    assertEquals(8, read(others + ",'n_ctx':8").nPositions());
    refused(others, "has no n_positions");
  }

  @Test
  void nullInnerMeansFourTimesTheWidth() throws IOException {
    assertEquals(48, read(LEAST + ",'n_inner':null").nInner());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "7 | [7]",
        "[7, 8] | [7, 8]",
        "[] | []",
        "null | []",
        "-1 | []",
        "50257 | []",
        "50256 | []" // what transformers writes when nobody set it
      })
  void endTokensOfASmallVocabulary(String value, String expected) throws IOException {
    String others = LEAST.replace("50257", "9");
    assertEquals(expected, read(others + ",'eos_token_id':" + value).eosTokenIds().toString());
    assertEquals(List.of(), read(others).eosTokenIds());
    assertEquals(-1, read(others).bosTokenId());
  }

  @Test
  void theNamesThatTransformersHasForAllModels() throws IOException {
    Gpt2Config expected = read(LEAST);
    String general =
        "'hidden_size':12,'num_hidden_layers':2,'num_attention_heads':3,"
            + "'max_position_embeddings':16,'vocab_size':50257";
    assertEquals(expected, read(general));
    assertEquals(expected, read(general + "," + LEAST.replace(",'vocab_size':50257", "")));
    assertEquals(expected, read(general + ",'n_ctx':9"));
    Path file = folder.resolve("config.json");
    for (String both :
        List.of(LEAST + ",'num_hidden_layers':4", "'num_hidden_layers':4," + LEAST)) {
      assertEquals(4, read(both).nLayer());
      assertEquals(
          List.of(
              "config.json says n_layer 2 and num_hidden_layers 4: the latter counts, as in"
                  + " transformers"),
          ConfigJson.read(file).notes());
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "'auto_map':{'AutoModelForCausalLM':'own.Model'}",
        "'rope_theta':10000.0",
        "'rope_scaling':{'type':'linear','factor':2.0}",
        "'position_embedding_type':'alibi'",
        "'multi_query':true",
        "'num_key_value_heads':1",
      })
  void fieldsOfOtherKindsOfModelsAreNamed(String field) throws IOException {
    assertEquals(read(LEAST), read(LEAST + "," + field));
    String name = field.substring(1, field.indexOf(':') - 1);
    assertEquals(
        List.of(
            "config.json sets %s: the GPT-2 of transformers does not know them, and they are not followed"
                .formatted(name)),
        ConfigJson.read(folder.resolve("config.json")).notes());
    read(
        LEAST
            + ",'rope_scaling':null,'multi_query':false,'auto_map':{},'num_key_value_heads':3,"
            + "'position_embedding_type':'absolute','reorder_and_upcast_attn':true");
    assertEquals(List.of(), ConfigJson.read(folder.resolve("config.json")).notes());
  }

  /** As Python writes numbers that are not finite, where nothing needs them. */
  @Test
  void numbersThatAreNotFinite() throws IOException {
    assertEquals(
        read(LEAST),
        read(LEAST + ",'x':NaN,'y':[-Infinity, Infinity,NaN],'z':{'NaN':NaN},'s':'-Infinity NaN'"));
    refused(LEAST + ",'layer_norm_epsilon':NaN", "layer_norm_epsilon is \"NaN\"");
    refused(LEAST + ",'eos_token_id':-Infinity", "eos_token_id is \"-Infinity\"");
    for (String odd : List.of("nan", "inf", "+Infinity", "NaN1", "1NaN", "Infinit", "--Infinity")) {
      refused(LEAST + ",'x':" + odd);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"['7']", "[[7]]", "{}", "'7'", "true", "7.0"})
  void refusesOddEndTokens(String value) {
    refused(LEAST + ",'eos_token_id':" + value, "eos_token_id is", "not a whole number");
  }

  @ParameterizedTest
  @EnumSource
  void knowsEveryActivation(Activation activation) throws IOException {
    String name = activation.configName();
    assertEquals(activation, read(LEAST + ",'activation_function':'" + name + "'").activation());
  }

  @Test
  void refusesOtherModels() {
    refused(LEAST + ",'model_type':'gpt_neo'", "\"gpt_neo\"", "only gpt2");
    refused(LEAST + ",'model_type':2", "model_type is 2, not a string");
    refused(LEAST + ",'add_cross_attention':true", "add_cross_attention");
    refused(LEAST + ",'activation_function':'glu'", "\"glu\"", "gelu_new, gelu_pytorch_tanh");
    refused(LEAST + ",'activation_function':null", "activation_function is null");
  }

  @ParameterizedTest
  @ValueSource(strings = {"n_layer", "n_head", "n_embd", "vocab_size"})
  void refusesToDoWithout(String field) {
    refused(LEAST.replace(field, "x"), "has no " + field);
    refused(
        LEAST.replace("'" + field + "':", "'x':1,'" + field + "':null,'y':"), field + " is null");
  }

  @ParameterizedTest
  @ValueSource(strings = {"'2'", "2.0", "2e0", "true", "[2]", "{}", "1e999", "1234567890123456789"})
  void refusesWhatIsNotAWholeNumber(String value) {
    refused(LEAST.replace("'n_layer':2", "'n_layer':" + value), "n_layer is", "whole number");
  }

  @ParameterizedTest
  @CsvSource({
    "n_layer, 0",
    "n_layer, -2",
    "n_layer, 4097",
    "n_layer, 4294967298", // 2 if it were cut to an int
    "n_head, 0",
    "n_embd, 2097152",
    "n_embd, 999999999999999999",
    "n_positions, 0",
    "n_positions, 2147483647",
    "vocab_size, -9223372036854775",
    "n_inner, 0",
    "n_inner, 2147483647"
  })
  void refusesNumbersOutOfRange(String field, String value) {
    String fields = LEAST.replaceAll("'" + field + "':[0-9]+", "'x':1");
    refused(fields + ",'" + field + "':" + value, field + " is " + value);
  }

  @Test
  void refusesContradictions() {
    refused(LEAST.replace("'n_head':3", "'n_head':5"), "n_embd 12", "n_head 5");
    refused(LEAST + ",'n_layer':2", "n_layer twice");
  }

  @ParameterizedTest
  @ValueSource(strings = {"0", "-1e-5", "1", "1e-60", "'1e-5'", "null", "1e400"})
  void refusesEpsilon(String value) {
    refused(LEAST + ",'layer_norm_epsilon':" + value, "layer_norm_epsilon");
  }

  @Test
  void refusesFlagsThatAreNotBooleans() {
    refused(LEAST + ",'scale_attn_weights':1", "scale_attn_weights is 1, not true or false");
    refused(LEAST + ",'scale_attn_weights':'true'", "scale_attn_weights is \"true\"");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        " ",
        "[]",
        "7",
        "{",
        "{}{}",
        "{\"n_layer\":NaN}",
        "{'n_layer':1}",
        "nul",
        "{\"a\":1}]",
        "\u0000"
      })
  void refusesOtherText(String text) throws IOException {
    Path file = folder.resolve("config.json");
    Files.writeString(file, text);
    Refusal.of(() -> ConfigJson.read(file), file);
  }

  @Test
  void refusesOtherFiles() throws IOException {
    Path file = folder.resolve("config.json");
    Files.write(file, "{\"x\":\"\u00e9\"}".getBytes(StandardCharsets.ISO_8859_1));
    Refusal.of(() -> ConfigJson.read(file), file, "UTF-8");
    Files.writeString(file, "version https://git-lfs.github.com/spec/v1\n");
    Refusal.of(() -> ConfigJson.read(file), file, "git lfs pull");
    Files.write(file, new byte[(16 << 20) + 1]);
    Refusal.of(() -> ConfigJson.read(file), file, "too many");
    Files.writeString(file, "{\"x\":" + "[".repeat(1_000_000));
    Refusal.of(() -> ConfigJson.read(file), file, "nested deeper than 32");
    Files.writeString(file, "{\"n_layer\":" + "9".repeat(1_000_000) + "}");
    Refusal.of(() -> ConfigJson.read(file), file);
  }

  @Test
  void writesWhatItReads() throws IOException {
    Path file = folder.resolve("config.json");
    for (Gpt2Config config :
        new Gpt2Config[] {
          ModelFolder.ODD, ModelFolder.LEAST, RandomCheckpoint.Size.GPT2_XL.config()
        }) {
      for (DType dtype : DType.values()) {
        Files.writeString(file, ConfigWriter.text(config, dtype, true));
        assertEquals(config, ConfigJson.read(file).config());
      }
    }
  }

  @Test
  void configsCheckThemselves() {
    assertThrows(
        IllegalArgumentException.class,
        () -> new Gpt2Config(1, 2, 6, 4, 5, 16, Activation.RELU, Float.NaN, true, false, -1, -1));
  }
}

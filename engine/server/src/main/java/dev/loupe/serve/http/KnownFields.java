package dev.loupe.serve.http;

import com.google.gson.JsonElement;
import com.google.gson.JsonParser;
import dev.loupe.weights.io.StrictJson;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What becomes of the fields of a request: some are honoured; some say nothing about the answer and
 * are passed over; of some, which can't be honoured, the value that asks for nothing is taken; and
 * what else there is is refused, as OpenAI does it.
 *
 * @param honoured by name; who reads the request checks their values
 * @param ignored by name
 * @param neutral the values of those that can't be honoured, besides null, by name
 */
public record KnownFields(
    Set<String> honoured, Set<String> ignored, Map<String, List<JsonElement>> neutral) {

  /** What sampling reads. */
  private static final Set<String> SAMPLING =
      Set.of(
          "temperature",
          "top_p",
          "top_k",
          "min_p",
          "repetition_penalty",
          "presence_penalty",
          "frequency_penalty",
          "seed");

  /** What a service does with a request besides answering it, which is nothing here. */
  private static final Set<String> HARMLESS =
      Set.of(
          "user",
          "metadata",
          "store",
          "service_tier",
          "safety_identifier",
          "prompt_cache_key",
          "prompt_cache_retention",
          "cache_salt",
          "priority",
          "request_id",
          "spaces_between_special_tokens");

  public static final KnownFields COMPLETIONS =
      new KnownFields(
          with(
              SAMPLING,
              "model",
              "prompt",
              "max_tokens",
              "min_tokens",
              "n",
              "best_of",
              "stop",
              "stop_token_ids",
              "ignore_eos",
              "echo",
              "logprobs",
              "stream",
              "stream_options",
              "truncate_prompt_tokens",
              "special",
              "add_special_tokens"),
          HARMLESS,
          neutral(
              """
              {"suffix": [""], "logit_bias": [{}], "use_beam_search": [false],
               "length_penalty": [1, 0], "early_stopping": [false], "beam_width": [1],
               "num_beams": [1], "response_format": [{"type": "text"}],
               "skip_special_tokens": [true], "include_stop_str_in_output": [false],
               "detokenize": [true], "prompt_logprobs": [], "allowed_token_ids": [],
               "bad_words": [[]], "logits_processors": [[]], "guided_json": [],
               "guided_regex": [], "guided_choice": [], "guided_grammar": [],
               "structured_outputs": [], "return_token_ids": [false],
               "return_tokens_as_token_ids": [false],
               "typical_p": [1], "top_a": [0], "tfs_z": [1], "mirostat": [0],
               "mirostat_mode": [0], "no_repeat_ngram_size": [0], "tools": [[]],
               "tool_choice": ["none", "auto"], "functions": [[]], "modalities": [["text"]]}
              """));

  public static final KnownFields STREAM_OPTIONS =
      new KnownFields(
          Set.of("include_usage"),
          Set.of("include_obfuscation"), // bytes that hide how long a text is
          neutral("{\"continuous_usage_stats\": [false]}"));

  public static final KnownFields RUNS =
      new KnownFields(
          with(
              SAMPLING,
              "text",
              "ids",
              "special",
              "add_special_tokens",
              "tokens",
              "prompt_length",
              "changes",
              "n_head",
              "mask"),
          Set.of(),
          Map.of());

  public static final KnownFields TOKENIZE =
      new KnownFields(
          Set.of("model", "prompt", "special", "add_special_tokens", "return_token_strs"),
          HARMLESS,
          Map.of());

  public static final KnownFields DETOKENIZE =
      new KnownFields(Set.of("model", "tokens"), HARMLESS, Map.of());

  public static final KnownFields CHANGES =
      new KnownFields(Set.of("layer", "head", "factor", "mean"), Set.of(), Map.of());

  public static final KnownFields CHAT =
      new KnownFields(
          with(
              SAMPLING,
              "model",
              "messages",
              "max_tokens",
              "max_completion_tokens",
              "min_tokens",
              "n",
              "stop",
              "stop_token_ids",
              "ignore_eos",
              "logprobs",
              "top_logprobs",
              "stream",
              "stream_options",
              "add_generation_prompt"),
          HARMLESS,
          neutral(
              COMPLETIONS.neutral,
              """
              {"echo": [false], "parallel_tool_calls": [true, false], "function_call": ["none", "auto"],
               "continue_final_message": [false], "add_special_tokens": [false],
               "chat_template": [], "chat_template_kwargs": [{}], "documents": [[]],
               "truncate_prompt_tokens": [], "reasoning_effort": [], "verbosity": [],
               "prediction": [], "audio": [], "web_search_options": []}
              """));

  public static final KnownFields MESSAGE =
      new KnownFields(
          Set.of("role", "content", "name"),
          Set.of(),
          neutral(
              """
              {"tool_calls": [[]], "annotations": [[]], "refusal": [], "audio": [],
               "function_call": [], "reasoning_content": []}
              """));

  public static final KnownFields PART =
      new KnownFields(Set.of("type", "text"), Set.of(), Map.of());

  private static Map<String, List<JsonElement>> neutral(
      Map<String, List<JsonElement>> some, String more) {
    Map<String, List<JsonElement>> all = new HashMap<>(some);
    all.putAll(neutral(more));
    return all;
  }

  private static Set<String> with(Set<String> some, String... more) {
    Set<String> all = new LinkedHashSet<>(List.of(more));
    all.addAll(some);
    return Set.copyOf(all);
  }

  private static Map<String, List<JsonElement>> neutral(String json) {
    Map<String, List<JsonElement>> neutral = new HashMap<>();
    JsonParser.parseString(json)
        .getAsJsonObject()
        .asMap()
        .forEach((name, values) -> neutral.put(name, values.getAsJsonArray().asList()));
    return neutral;
  }

  /**
   * Passes a request that asks for nothing which would be passed over.
   *
   * @throws ApiException if it does; it names the field
   */
  public void check(Fields fields) {
    fields
        .json()
        .asMap()
        .forEach(
            (name, value) -> {
              if (!value.isJsonNull() && !honoured.contains(name) && !ignored.contains(name)) {
                check(name, value);
              }
            });
  }

  private void check(String name, JsonElement value) {
    String shown = StrictJson.shown(name);
    List<JsonElement> taken = neutral.get(name);
    if (taken == null) {
      throw ApiException.field(
          shown, "unknown_parameter", "there is no parameter %s".formatted(shown));
    }
    if (taken.stream().noneMatch(each -> same(each, value))) {
      throw ApiException.field(
          shown,
          "unsupported_parameter",
          taken.isEmpty()
              ? "%s is not supported: leave it out".formatted(shown)
              : "%s is not supported: leave it out, or give %s".formatted(shown, taken.getFirst()));
    }
  }

  /** Numbers are compared by value: 1 is 1.0. */
  private static boolean same(JsonElement a, JsonElement b) {
    return (Fields.isNumber(a) && Fields.isNumber(b))
        ? a.getAsDouble() == b.getAsDouble()
        : a.equals(b);
  }
}

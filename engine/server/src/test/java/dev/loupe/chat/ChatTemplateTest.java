package dev.loupe.chat;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.reflect.TypeToken;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Templates against jinja2's texts, and what they can't do. */
@Timeout(200)
class ChatTemplateTest {
  private static final Map<String, String> TOKENS = Map.of("bos_token", "<s>", "eos_token", "</s>");
  private static final List<Map<String, Object>> HELLO =
      List.of(Map.of("role", "user", "content", "Hello"));

  private static String render(String template) throws ChatTemplateException {
    return new ChatTemplate(template, "x", TOKENS).render(HELLO, true);
  }

  private static void refused(String template, String... words) {
    ChatTemplateException e =
        assertThrows(ChatTemplateException.class, () -> render(template), template);
    String message = String.valueOf(e.getMessage());
    for (String word : words) {
      assertTrue(message.contains(word), () -> "no <" + word + "> in: " + message);
    }
    assertTrue(message.length() < 400, message);
    assertEquals(1, message.lines().count(), message);
  }

  @Test
  void textsAreThoseOfJinja() throws Exception {
    JsonObject all;
    try (InputStream json = ChatTemplateTest.class.getResourceAsStream("cases.json")) {
      String text = new String(Objects.requireNonNull(json).readAllBytes(), UTF_8);
      all = JsonParser.parseString(text).getAsJsonObject();
    }
    int checked = 0;
    for (JsonElement each : all.getAsJsonArray("cases")) {
      JsonObject wanted = each.getAsJsonObject();
      String name = wanted.get("template").getAsString();
      String chat = wanted.get("chat").getAsString();
      ChatTemplate template =
          new ChatTemplate(all.getAsJsonObject("templates").get(name).getAsString(), "x", TOKENS);
      List<Map<String, Object>> messages =
          new Gson().fromJson(all.getAsJsonObject("chats").get(chat), new TypeToken<>() {});
      boolean toBeAnswered = wanted.get("add_generation_prompt").getAsBoolean();
      if (wanted.has("text")) {
        assertEquals(
            wanted.get("text").getAsString(),
            template.render(messages, toBeAnswered),
            name + ", " + chat);
      } else {
        ChatTemplateException e =
            assertThrows(
                ChatTemplateException.class, () -> template.render(messages, toBeAnswered));
        assertEquals(
            "the chat template of x refuses these messages: " + wanted.get("refused").getAsString(),
            e.getMessage());
      }
      checked++;
    }
    assertEquals(80, checked);
  }

  @Test
  void whatAUserSaysIsNoTemplate() throws Exception {
    String evil = "{{ raise_exception('!') }}{% for %}{# x #}";
    assertEquals(
        "[" + evil + "]",
        new ChatTemplate("{% for m in messages %}[{{ m.content }}]{% endfor %}", "x", TOKENS)
            .render(List.of(Map.of("role", "user", "content", evil)), true));
  }

  @Test
  void knowsTheDay() throws Exception {
    assertTrue(
        render("{{ strftime_now('%d %b %Y, %H:%M') }}")
            .matches("\\d\\d [A-Z][a-z]{2} \\d{4}, \\d\\d:\\d\\d"));
    refused("{{ strftime_now('%Q') }}");
  }

  /** Java, the files of this program, and the library's own insides. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "{{ ''.getClass() }}",
        "{{ messages.getClass().getName() }}",
        "{{ messages.stream() }}",
        "{{ messages[0].entrySet() }}",
        "{{ ''.chars() }}",
        "{{ ____int3rpr3t3r____.getContext() }}",
        "{{ filter:trim.getName() }}",
        "{% include 'META-INF/MANIFEST.MF' %}",
        "{% extends 'META-INF/MANIFEST.MF' %}",
        "{% import 'META-INF/MANIFEST.MF' as x %}",
        "{% from 'META-INF/MANIFEST.MF' import x %}",
        "{% do messages.clear() %}",
        "{{ 'x'|md5 }}",
        "{{ 'x'|nothing }}",
        "{% nothing %}",
        "{{ nothing(1) }}",
        "{{ 'x' is nothing }}",
        "{{ loop_controls() }}"
      })
  void nothingElseCanBeReached(String template) {
    refused(template, "the chat template of x can't be used");
  }

  @Test
  void classesAreNoValues() throws Exception {
    assertEquals("", render("{{ ''.class }}{{ messages.class.forName }}{{ messages[0].class }}"));
  }

  @Test
  void timeAndSpaceHaveLimits() {
    String loops = "{% for a in range(9999) %}";
    refused(loops.repeat(4) + "{% endfor %}".repeat(4), "takes");
    String twice =
        "{% set ns = namespace(x='0123456789') %}{% for i in range(60) %}"
            + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    refused(twice, "can't be used");
    refused(twice.replace("~", "+"), "can't be used");
    refused(twice.replace("~", "+").replace("'0123456789'", "[1, 2]"), "can't be used");
    refused("{% for i in range(9999) %}" + "x".repeat(9999) + "{% endfor %}", "can't be used");
    refused("{{ 'x'|center(1000000000) }}", "center");
    refused("{% macro a(x) %}{{ a(x) }}{% endmacro %}{{ a(1) }}", "can't be used");
    StringBuilder macros = new StringBuilder("{% macro m0() %}x{% endmacro %}");
    for (int i = 1; i < 60; i++) {
      macros.append("{% macro m").append(i).append("() %}");
      macros.append("{{ mN() }}{{ mN() }}{% endmacro %}".replace("N", "" + (i - 1)));
    }
    refused(macros + "{{ m59() }}", "can't be used");
    refused("{{ " + "(".repeat(20_000) + "1" + ")".repeat(20_000) + " }}", "nested");
    refused("{{ " + "not ".repeat(20_000) + "1 }}", "can't be used");
    refused("{{ " + "1 + ".repeat(20_000) + "1 }}", "can't be used");
    refused("{% if messages %}".repeat(5_000) + "{% endif %}".repeat(5_000), "can't be used");
    refused("x".repeat(1 << 20), "characters");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{% if %}",
        "{% if x %}",
        "{% endfor %}",
        "{{ (((((",
        "{% for a in messages recursive %}{% endfor %}",
        "{% for k, v in messages if k %}{% endfor %}",
        "{{ messages | tojson(indent=2) }}",
        "{{ 'a'.split() | first.x( }}"
      })
  void whatIsNoTemplateIsSaid(String template) {
    refused(template, "the chat template of x can't be used: ");
  }

  @Test
  void methodsAreThoseOfPython() throws Exception {
    assertEquals(
        "a.b|x|A b|A B|True|['a', 'b']|2|bc|ab|yes",
        render(
            "{{ 'a.b..'.strip('.') }}|{{ ' x\\n'.strip() }}|{{ 'a B'.capitalize() }}|{{ 'a b'.title() }}|"
                + "{{ 'True' if 'abc'.startswith('ab') and 'abc'.endswith(('x', 'bc')) else 'False' }}|"
                + "{{ ' a  b '.split() }}|{{ 'a,b,c'.split(',', 1) | length }}|{{ 'abc'.removeprefix('a') }}|"
                + "{{ 'abc'.removesuffix('c') }}|{{ 'yes' if '12'.isdigit() and 'abab'.count('ab') == 2 }}"));
    assertEquals("😀3", render("{{ 'x😀y'[1] }}{{ 'x😀y' | length }}"));
  }
}

package dev.loupe.clients;

import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.http.StreamResponse;
import com.openai.errors.BadRequestException;
import com.openai.models.chat.completions.ChatCompletionChunk;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.completions.CompletionCreateParams;
import dev.langchain4j.model.openai.OpenAiLanguageModel;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.openai.OpenAiChatModel;
import org.springframework.ai.openai.OpenAiChatOptions;

/** Asks a server the same by each of three clients; their answers must be alike. */
public final class Clients {
  private static final String SAID = "Who is there?";
  private static final long SEED = 1;
  private static final int TOKENS = 20;

  private Clients() {}

  public static void main(String[] args) {
    String base = args[0] + "/v1";
    OpenAIClient openAi =
        OpenAIOkHttpClient.builder().baseUrl(base).apiKey("none").maxRetries(0).build();
    String model = openAi.models().list().data().get(0).id();

    CompletionCreateParams text =
        CompletionCreateParams.builder()
            .model(model)
            .prompt("ROMEO:")
            .maxTokens(TOKENS)
            .seed(SEED)
            .build();
    String whole = openAi.completions().create(text).choices().get(0).text();
    String langChain =
        OpenAiLanguageModel.builder()
            .baseUrl(base)
            .apiKey("none")
            .modelName(model)
            .temperature(0.0)
            .maxRetries(0)
            .build()
            .generate("ROMEO:")
            .content();
    System.out.println("completion, OpenAI's: " + quoted(whole));
    System.out.println("completion, LangChain4j, greedy: " + quoted(langChain));
    try {
      openAi.completions().create(text.toBuilder().maxTokens(9999L).build());
      throw new AssertionError("too many tokens were taken");
    } catch (BadRequestException e) {
      System.out.println("refused: " + e.getMessage());
    }

    ChatCompletionCreateParams talk =
        ChatCompletionCreateParams.builder()
            .model(model)
            .addUserMessage(SAID)
            .maxCompletionTokens(TOKENS)
            .seed(SEED)
            .build();
    String answer = openAi.chat().completions().create(talk).choices().get(0).message().content().get();
    StringBuilder streamed = new StringBuilder();
    try (StreamResponse<ChatCompletionChunk> chunks =
        openAi.chat().completions().createStreaming(talk)) {
      chunks.stream()
          .flatMap(chunk -> chunk.choices().stream())
          .forEach(choice -> choice.delta().content().ifPresent(streamed::append));
    }
    same("OpenAI's stream", answer, streamed.toString());
    same(
        "LangChain4j",
        answer,
        dev.langchain4j.model.openai.OpenAiChatModel.builder()
            .baseUrl(base)
            .apiKey("none")
            .modelName(model)
            .maxCompletionTokens(TOKENS)
            .seed((int) SEED)
            .maxRetries(0)
            .build()
            .chat(SAID));
    OpenAiChatModel spring =
        OpenAiChatModel.builder()
            .options(
                OpenAiChatOptions.builder()
                    .baseUrl(base)
                    .apiKey("none")
                    .model(model)
                    .maxCompletionTokens(TOKENS)
                    .seed((int) SEED)
                    .build())
            .build();
    same("Spring AI", answer, ChatClient.create(spring).prompt(SAID).call().content());
    same(
        "Spring AI's stream",
        answer,
        String.join("", ChatClient.create(spring).prompt(SAID).stream().content().toIterable()));
    System.out.println("chat, all alike: " + quoted(answer));
    System.exit(0); // some keep threads
  }

  private static void same(String client, String expected, String answer) {
    if (!expected.equals(answer)) {
      throw new AssertionError(
          client + " got " + quoted(answer) + " instead of " + quoted(expected));
    }
  }

  private static String quoted(String text) {
    return '"' + text.replace("\n", "\\n") + '"';
  }
}

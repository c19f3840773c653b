"""DescribeConfigs, IncrementalAlterConfigs, and AlterConfigs, which replaces all settings of a resource."""

from __future__ import annotations

from collections import Counter

from node.kafka.calls import Call, NativeHandler, Outcome, answer_to, converted
from tidelog.errors import BrokerError, InvalidRequestError
from tidelog.protocol import admin_messages as admin
from tidelog.protocol.kafka.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


class ConfigTranslation:
    """The translations of this module; `handle` is the broker's own handler."""

    def __init__(self, handle: NativeHandler) -> None:
        self._handle = handle

    # --- DescribeConfigs -----------------------------------------------------------------------------

    def describe(self, request: DescribeConfigsRequest, call: Call) -> Outcome:
        """Describe settings. An empty list of names asks for all, as null does."""
        queries = tuple(
            admin.ConfigQuery(each.resource_type, each.resource_name, each.configuration_keys or None)
            for each in request.resources
        )
        outcome = self._handle(
            admin.DescribeConfigsRequest(queries, request.include_synonyms, request.include_documentation),
            call.context,
        )

        def convert(response: admin.DescribeConfigsResponse) -> DescribeConfigsResponse:
            return DescribeConfigsResponse(
                results=tuple(
                    DescribeConfigsResult(
                        error_code=each.error_code,
                        error_message=each.error_message,
                        resource_type=each.resource_type,
                        resource_name=each.resource_name,
                        configs=tuple(map(_described, each.entries)),
                    )
                    for each in response.resources
                )
            )

        return converted(outcome, convert)

    @staticmethod
    def describe_error(request: DescribeConfigsRequest, error: BrokerError, version: int) -> DescribeConfigsResponse:
        """Return the response in which every resource has this error."""
        return DescribeConfigsResponse(
            results=tuple(
                DescribeConfigsResult(
                    error_code=error.code,
                    error_message=str(error),
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=(),
                )
                for each in request.resources
            )
        )

    # --- IncrementalAlterConfigs ---------------------------------------------------------------------

    def alter(self, request: IncrementalAlterConfigsRequest, call: Call) -> Outcome:
        """Change single settings of topics, of this broker, or of all brokers. Each resource has its own result."""
        alterations = tuple(
            admin.ConfigAlteration(
                resource.resource_type,
                resource.resource_name,
                tuple(admin.ConfigChange(each.name, each.value, each.config_operation) for each in resource.configs),
            )
            for resource in request.resources
        )
        outcome = self._handle(admin.IncrementalAlterConfigsRequest(alterations, request.validate_only), call.context)

        def convert(response: admin.IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
            return IncrementalAlterConfigsResponse(
                responses=tuple(
                    IncrementalAlterConfigsResourceResponse(
                        error_code=each.error_code,
                        error_message=each.error_message,
                        resource_type=each.resource_type,
                        resource_name=each.resource_name,
                    )
                    for each in response.resources
                )
            )

        return converted(outcome, convert)

    @staticmethod
    def alter_error(
        request: IncrementalAlterConfigsRequest, error: BrokerError, version: int
    ) -> IncrementalAlterConfigsResponse:
        """Return the response in which every resource has this error."""
        return IncrementalAlterConfigsResponse(
            responses=tuple(
                IncrementalAlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=str(error),
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in request.resources
            )
        )

    # --- AlterConfigs --------------------------------------------------------------------------------

    async def replace(self, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
        """Replace all own settings of topics or brokers. Refuse a resource with a null value or a repeated setting."""
        refused = list(map(_unusable, request.resources))
        replaced = tuple(
            admin.ReplacedConfigs(
                each.resource_type, each.resource_name, {config.name: config.value or "" for config in each.configs}
            )
            for each, refusal in zip(request.resources, refused, strict=True)
            if refusal is None
        )
        response: admin.AlterConfigsResponse = await answer_to(
            self._handle, admin.AlterConfigsRequest(replaced, request.validate_only), call
        )
        outcomes = iter(response.resources)
        return AlterConfigsResponse(
            responses=tuple(_replaced(next(outcomes)) if each is None else each for each in refused)
        )

    @staticmethod
    def replace_error(request: AlterConfigsRequest, error: BrokerError, version: int) -> AlterConfigsResponse:
        """Return the response in which every resource has this error."""
        return AlterConfigsResponse(
            responses=tuple(_not_replaced(each, error.code, str(error)) for each in request.resources)
        )


def _described(entry: admin.ConfigEntry) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in entry.synonyms
        ),
        config_type=entry.config_type,
        documentation=entry.documentation,
    )


def _unusable(resource: AlterConfigsResource) -> AlterConfigsResourceResponse | None:
    """Return the refusal of a resource whose settings are malformed, or None."""
    if without_value := [each.name for each in resource.configs if each.value is None]:
        return _not_replaced(resource, InvalidRequestError.code, f"{', '.join(without_value)}: the value is null")
    named = Counter(each.name for each in resource.configs)
    if twice := [name for name, count in named.items() if count > 1]:
        return _not_replaced(resource, InvalidRequestError.code, f"{', '.join(twice)}: the resource has it twice")
    return None


def _replaced(outcome: admin.AlteredConfigs) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=outcome.error_code,
        error_message=outcome.error_message,
        resource_type=outcome.resource_type,
        resource_name=outcome.resource_name,
    )


def _not_replaced(resource: AlterConfigsResource, error_code: int, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error_code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
